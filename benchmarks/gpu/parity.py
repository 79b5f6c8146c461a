"""Compare logits and texts of the engines of the device with those of the CPU.

The CPU's package computes in FP32 from the same weights, so it is the reference. A difference is
given as a share of the span of the logits it concerns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gpu.adapter import load
from gpu.models import device_package, export_pairs, pairs_of, prompts, reference_package
from gpu.sections import Recorder, Setup
from numpy.typing import NDArray

from specdec.engines import Engine, LoadedPackage
from specdec.engines.load import read_package
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.audit.exact import PlainReader
from specdec.runtime.audit.greedy import compare_greedy

__all__ = [
    "TOLERANCE",
    "compare",
    "decoder_of",
    "export",
    "greedy",
    "logits",
    "pair_text",
    "same_text",
]

TOLERANCE = {"cpu": 1e-4, "fp16": 0.02, "quantized": 0.1}
"""Of the span of the logits: the CPU against itself; FP16 against FP32 arithmetic; a quantized
draft, whose activations are rounded to 8 bits on the CPU alone."""
_FORGETS = 1e-3
_NOISE_FACTOR = 4.0
_MOST_DRAFTED = 8


def export(setup: Setup, recorder: Recorder) -> None:
    """Write the packages of tiny models that the parity sections load."""
    for pair in pairs_of(setup):
        before = recorder.left
        export_pairs(setup, [pair], recorder)
        seconds = before - recorder.left
        for kind, path in (
            ("cpu", reference_package(setup, pair)),
            (setup.made_for, device_package(setup, pair)),
        ):
            wrong = _defects(path, kind, pair.precision)
            told = "; ".join(wrong) or f"{seconds:.0f} s"
            recorder.check(f"{pair.name} is exported for {kind}", not wrong, told)


def _defects(path: Path, kind: str, precision: str) -> list[str]:
    """What is wrong with a package, by its checksums, its own checks and what it says it is."""
    manifest = read_package(path, verify_checksums=True).manifest
    draft = manifest.draft
    compute = "fp16" if kind == "cuda" else "fp32"
    greedy_pair = manifest.checks["greedy_pair"]
    expected = {
        "made for": (manifest.source["device"], kind),
        "arithmetic": (manifest.target.compute, compute),
        "draft": (draft and draft.storage, precision),
        "greedy tokens": (greedy_pair["matching"], greedy_pair["tokens"]),
    }
    wrong = [f"{what}: {got}, not {must}" for what, (got, must) in expected.items() if got != must]
    return [*manifest.checks["problems"], *wrong]


def logits(setup: Setup, recorder: Recorder) -> None:
    """Logits of every width, of a prefill chunk and after truncation."""
    ids = np.array(prompts(1, 320))
    widths = range(1, (4 if setup.tiny else _MOST_DRAFTED) + 2)
    for pair in pairs_of(setup):
        with (
            load(reference_package(setup, pair), "cpu") as reference,
            load(device_package(setup, pair), setup.device) as tested,
        ):
            names = ("target", "draft")
            for name in names:
                kind = "fp16" if name == "target" else "quantized"
                allowed = TOLERANCE["cpu" if setup.made_for == "cpu" else kind]
                first, second = getattr(reference, name), getattr(tested, name)
                assert first is not None
                assert second is not None
                found = compare(first, second, ids, widths)
                worst = max(found, key=lambda key: found[key])
                recorder.figure(f"{pair.name} {name}", found)
                recorder.check(
                    f"{pair.name} {name} logits",
                    found[worst] <= allowed,
                    f"{found[worst]:.2g} of the span at {worst}, allowed {allowed:g}",
                )
            forgets = _forgetting(tested.target, tested.draft or tested.target, ids)
            recorder.check(f"{pair.name} forgets", forgets <= _FORGETS, f"{forgets:.2g}")


def greedy(setup: Setup, recorder: Recorder) -> None:
    """Texts with and without the draft on the device, and on the CPU."""
    lengths = 24 if setup.tiny else 64
    for pair in pairs_of(setup):
        with (
            load(reference_package(setup, pair), "cpu") as reference,
            load(device_package(setup, pair), setup.device) as tested,
        ):
            decoder = decoder_of(tested)
            for index, prompt in enumerate(prompts(2 if setup.tiny else 4, 40)):
                if recorder.left < 0 and index:
                    recorder.shorten(f"further prompts of {pair.name}")
                    break
                pair_text(recorder, f"{pair.name} {index}", decoder, tested.target, prompt, lengths)
                name = f"{pair.name} {index} is the CPU's"
                same_text(recorder, name, (reference, tested), prompt, lengths)


def decoder_of(package: LoadedPackage) -> SpeculativeDecoder:
    """A decoder over engines that the package keeps, without tokenizer and end tokens."""
    return SpeculativeDecoder(
        package.target, package.draft, shares_cache=package.draft_shares_cache
    )


def pair_text(
    recorder: Recorder,
    name: str,
    decoder: SpeculativeDecoder,
    target: Engine,
    prompt: list[int],
    length: int,
) -> None:
    """Check that the text with a draft is the text without, up to near-ties."""
    for wanted in (4, "auto"):
        params = SamplingParams(max_new_tokens=length, num_draft_tokens=wanted)
        plain, difference = compare_greedy(decoder, target, prompt, params)
        told = f"{len(plain)} tokens equal, {len(set(plain))} kinds of them"
        if difference is not None:
            told = (
                f"differs at {difference.position}: gap {difference.gap:.2g}, rounding "
                f"{difference.noise:.2g}"
            )
        passed = difference is None or difference.is_near_tie
        recorder.check(f"{name} K={wanted} is plain", passed, told)


def same_text(
    recorder: Recorder,
    name: str,
    packages: tuple[LoadedPackage, LoadedPackage],
    prompt: list[int],
    length: int,
) -> None:
    """Check that two packages' plain texts are equal, up to near-ties of the first's logits.

    The logits of the two may differ by rounding: attention splits its work by the total length that
    it is told, which is fixed in captured passes, and computes otherwise on another device.

    Args:
        recorder: receives the check.
        name: of the check.
        packages: the reference, and the tested one.
        prompt: ids.
        length: of the text.
    """
    params = SamplingParams(max_new_tokens=length, num_draft_tokens=0)
    first, second = (decoder_of(one).generate(prompt, params).token_ids for one in packages)
    same = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if same is None:
        recorder.check(name, len(first) == len(second), f"{len(first)} equal")
        return
    rows = [PlainReader(one.target, prompt).logits(first[:same]).copy() for one in packages]
    second_best, best = np.partition(rows[0], -2)[-2:]
    gap, noise = float(best - second_best), float(np.abs(rows[0] - rows[1]).max())
    sound = noise <= TOLERANCE["fp16"] * float(np.ptp(rows[0]))
    recorder.check(
        name,
        sound and gap <= _NOISE_FACTOR * noise,
        f"differs at {same}: gap {gap:.2g}, rounding {noise:.2g}",
    )


def compare(
    first: Engine, second: Engine, ids: NDArray[np.int64], widths: range
) -> dict[str, float]:
    """Largest difference of two engines by place, as a share of the span of the logits."""
    chunk = min(int(getattr(second, "prefill_chunk", 256)), ids.shape[1] - max(widths))
    found = {}
    for engine in (first, second):
        engine.truncate(0)
    found[f"prefill of {chunk}"] = _difference(first, second, ids[:, :chunk], 1)
    for rows in widths:
        found[f"{rows} rows"] = _difference(first, second, ids[:, chunk : chunk + rows], rows)
        for engine in (first, second):
            engine.truncate(chunk)
    for engine in (first, second):
        engine.truncate(chunk // 2)
    found["3 rows after truncation"] = _difference(first, second, ids[:, 5:8], 3)
    for engine in (first, second):
        engine.truncate(0)
    return found


def _difference(first: Engine, second: Engine, ids: NDArray[np.int64], count: int) -> float:
    size = first.info.vocab_size
    rows = [engine.forward(ids, count)[0, :, :size].copy() for engine in (first, second)]
    if not all(np.isfinite(part).all() for part in rows):
        return float("inf")
    return float(np.abs(rows[0] - rows[1]).max() / np.ptp(rows[0]))


def _forgetting(target: Engine, writer: Any, ids: NDArray[np.int64]) -> float:
    """What a pass changes by, after other rows came and went, as a share of the span."""
    target.truncate(0)
    target.forward(ids[:, :64], 0)
    before = target.forward(ids[:, 64:69], 5)[0].copy()
    target.truncate(64)
    if writer.length != target.length:  # a cache of its own
        writer = target
    writer.forward(ids[:, 100:107], 0)
    target.truncate(64)
    after = target.forward(ids[:, 64:69], 5)[0].copy()
    target.truncate(0)
    return float(np.abs(after - before).max() / np.ptp(before))
