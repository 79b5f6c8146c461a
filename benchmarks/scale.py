"""Measure the speed-up over context, length of the output, and cost of the draft.

    python benchmarks/scale.py PACKAGE [--part context] [--part output] [--part depth]

PACKAGE is a package of the demo pair (`make demo` writes packages/demo). `depth` needs the
export's libraries and several minutes: it builds synthetic targets, see `deep_model.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from demo.deep_model import write_deep_model
from demo.scale_point import HEADER, Point, measure_point
from demo.weights import default_cache, write_folder

from specdec.engines.storage.writing import write_file
from specdec.runtime import SpeculativeDecoder
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.prompt_set import load_prompts, load_texts, prompt_ids

CONTEXTS = (256, 512, 1024, 2048, 4096)
OUTPUTS = (32, 128, 512, 1024)
DEPTHS = (1, 2, 4)
QUESTION = "Write a detailed guide to growing vegetables on a balcony, month by month."


def main() -> None:
    """Measure the parts asked for and print their tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--part", action="append", choices=("context", "output", "depth"))
    parser.add_argument("--draft-tokens", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--tokens", type=int, default=64, help="new tokens, output part excepted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="synthetic targets")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    machine = asdict(describe_machine("cpu"))
    print(f"{machine['cpu']}, {machine['cores']} cores, onnxruntime {machine['onnxruntime']}")
    print(
        f"greedy, {options.tokens} new tokens, median of {options.repeats}; c and T from the runs"
    )
    rows: list[dict[str, Any]] = []
    for part in options.part or ["context", "output", "depth"]:
        print(f"\n{HEADER.format(axis=part)}", flush=True)
        if part == "depth":
            depth(options, rows)
            continue
        with SpeculativeDecoder.load(options.package) as decoder:
            (context if part == "context" else output)(decoder, options, rows)
    if options.json:
        document = {"machine": machine, "rows": rows}
        write_file(options.json, json.dumps(document, indent=1))


def context(
    decoder: SpeculativeDecoder, options: argparse.Namespace, rows: list[dict[str, Any]]
) -> None:
    """Tokens in the cache when the output ends: the prompt fills what the output leaves."""
    for length in CONTEXTS:
        if length <= decoder.max_length:
            prompt = filler(decoder, length - options.tokens)
            points, _ = measure_point(
                decoder, prompt, options.draft_tokens, options.tokens, options.repeats
            )
            show("context", length, points, rows)


def output(
    decoder: SpeculativeDecoder, options: argparse.Namespace, rows: list[dict[str, Any]]
) -> None:
    """New tokens after a short prompt."""
    prompt = prompt_ids(decoder, QUESTION)
    for length in OUTPUTS:
        points, _ = measure_point(decoder, prompt, options.draft_tokens, length, options.repeats)
        show("output", length, points, rows)


def depth(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """The demo model as target with idle layers, and as draft in INT8 with a cache of its own."""
    texts = set()
    for factor in DEPTHS:
        with SpeculativeDecoder.load(deep_package(options.cache, factor)) as decoder:
            prompt = prompt_ids(decoder, QUESTION)
            points, text = measure_point(
                decoder, prompt, options.draft_tokens, options.tokens, options.repeats
            )
        texts.add(text)
        show("depth", f"{factor}x (synthetic)" if factor > 1 else "1x", points, rows)
    same = "the same" if len(texts) == 1 else "NOT the same"
    print(f"synthetic targets: idle layers that add nothing; greedy texts are {same}")


def deep_package(cache: Path, factor: int) -> Path:
    """Build and export a deeper target with the ordinary model as INT8 draft, once."""
    from specdec.export import ExportOptions, export_package

    folder = cache / "depth"
    folder.mkdir(parents=True, exist_ok=True)
    source, package = write_folder(cache), folder / f"package-{factor}x"
    if not package.exists():
        model = folder / f"model-{factor}x"
        if not model.exists():
            write_deep_model(source, model, factor)
        print(f"exporting the target of depth {factor}x", file=sys.stderr)
        export_package(
            ExportOptions(target=str(model), draft=str(source), out=package, max_length=2048)
        )
    return package


def filler(decoder: SpeculativeDecoder, length: int) -> list[int]:
    """A prompt of exactly `length` tokens: the passages of the prompt set, over and over."""
    passages = [*load_texts(), *load_prompts()]
    text = "\n\n".join(passage.text for passage in passages if passage.language == "en")
    ids = decoder.encode(text)
    question = prompt_ids(decoder, QUESTION)
    wanted = max(length - len(question), 0)
    return [*(ids * (wanted // len(ids) + 1))[:wanted], *question][-length:]


def show(part: str, place: object, points: list[Point], rows: list[dict[str, Any]]) -> None:
    """Print the lines of one place, and keep their figures."""
    for point in points:
        print(point.row(place), flush=True)
        rows.append({"part": part, "place": place, **asdict(point)})


if __name__ == "__main__":
    main()
