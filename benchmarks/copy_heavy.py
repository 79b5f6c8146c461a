"""Time look-up drafting where the answer repeats the prompt: quotes, edits, retrieval.

    python benchmarks/copy_heavy.py PACKAGE [--tokens 256] [--repeats 3] [--temperature 0]

Plain decoding, the model as drafter, look-up alone and both ("hybrid") take turns on each
prompt, all with the adaptive number of drafted tokens. Reported per prompt: the decoding speed
over plain decoding, and how much of the answer stands in the prompt word for word (tokens in
runs of at least eight), since a small model does not always do as it is asked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

from specdec.engines.storage.writing import write_file
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.prompt_set import prompt_ids
from specdec.runtime.report.measuring.runs import BenchPrompt, Run, Variant, play_interleaved

PROMPTS = Path(__file__).with_name("copy_prompts.json")
DRAFTERS: tuple[DrafterName, ...] = ("ngram", "model", "hybrid")
RUN = 8

__all__ = ["copied_share", "main", "speedups"]


def copied_share(prompt: Sequence[int], answer: Sequence[int], run: int = RUN) -> float:
    """Share of the answer's tokens that lie in runs of at least `run` tokens of the prompt."""
    known = {tuple(prompt[i : i + run]) for i in range(len(prompt) - run + 1)}
    copied: set[int] = set()
    for start in range(len(answer) - run + 1):
        if tuple(answer[start : start + run]) in known:
            copied.update(range(start, start + run))
    return len(copied) / len(answer) if answer else 0.0


def speedups(runs: Sequence[Run], prompt: int, variant: str) -> list[float]:
    """Decoding speed over plain decoding, repeat by repeat."""
    speeds = {
        (run.variant, run.repeat): run.stats.tokens_per_second
        for run in runs
        if run.prompt == prompt
    }
    repeats = sorted({run.repeat for run in runs})
    return [speeds[variant, repeat] / speeds["plain", repeat] for repeat in repeats]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = json.loads(PROMPTS.read_text(encoding="utf-8"))
    with ExitStack() as stack:
        decoders = {
            name: stack.enter_context(SpeculativeDecoder.load(options.package, drafter=name))
            for name in DRAFTERS
        }
        one = decoders["ngram"]
        prompts = [
            BenchPrompt(text["kind"], tuple(prompt_ids(one, text["text"]))) for text in texts
        ]
        common = {"max_new_tokens": options.tokens, "temperature": options.temperature}
        variants = [Variant("plain", one, SamplingParams(num_draft_tokens=0, **common))]
        variants += [Variant(name, decoders[name], SamplingParams(**common)) for name in DRAFTERS]
        runs = play_interleaved(prompts, variants, options.repeats + 1)
    runs = [run for run in runs if run.repeat > 0]  # the first turn warms up
    machine = asdict(describe_machine("cpu"))
    print(f"{machine['cpu']}, {machine['cores']} cores, onnxruntime {machine['onnxruntime']}")
    print(
        f"T = {options.temperature:g}, at most {options.tokens} tokens, {options.repeats} repeats\n"
    )
    rows = report(prompts, runs)
    if options.json:
        document = {"machine": machine, "rows": rows}
        write_file(options.json, json.dumps(document, indent=1))


def report(prompts: Sequence[BenchPrompt], runs: Sequence[Run]) -> list[dict[str, object]]:
    """Print the table and return its rows."""
    print(f"| prompt | tokens | copied | plain tokens/s | {' | '.join(DRAFTERS)} |")
    print(f"|---|---|---|---|{'---|' * len(DRAFTERS)}")
    rows: list[dict[str, object]] = []
    for index, prompt in enumerate(prompts):
        plain = [run for run in runs if run.prompt == index and run.variant == "plain"]
        answer = plain[0].token_ids
        share = copied_share(prompt.token_ids, answer)
        speed = median(run.stats.tokens_per_second for run in plain)
        gains: dict[str, float] = {name: median(speedups(runs, index, name)) for name in DRAFTERS}
        cells = " | ".join(f"{gain:.2f}" for gain in gains.values())
        print(f"| {prompt.category} | {len(answer)} | {share:.0%} | {speed:.1f} | {cells} |")
        row = {"prompt": prompt.category, "tokens": len(answer), "copied": share, "plain": speed}
        rows.append({**row, **gains})
    middle = " | ".join(f"{median(float(str(row[name])) for row in rows):.2f}" for name in DRAFTERS)
    print(f"| median | | | | {middle} |")
    return rows


if __name__ == "__main__":
    main()
