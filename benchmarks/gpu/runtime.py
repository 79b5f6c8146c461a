"""Parity of the runtime over the engines: sampling, reductions, graphs, mixed devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from gpu.adapter import bytes_moved, load
from gpu.models import device_package, pairs_of, prompts, reference_package
from gpu.parity import TOLERANCE, decoder_of, pair_text, same_text
from gpu.passes import pass_seconds
from gpu.sections import Recorder, Setup

from specdec.engines import Engine, SpecdecError
from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.audit import AuditPlan, audit, default_settings

__all__ = ["GRAPHS_WORK", "cross_device", "cuda_graphs", "reduced_head", "refusals", "sampling"]

GRAPHS_WORK = "cuda-graphs-work"
"""File in the work folder once captured passes were found to compute the same, in less time."""
_WAYS = {
    "greedy": SamplingParams(num_draft_tokens=4),
    "T 1": SamplingParams(temperature=1.0, num_draft_tokens=3),
    "T 0.8, top-k 20": SamplingParams(temperature=0.8, top_k=20, num_draft_tokens=4),
    "T 0.8, top-p 0.9": SamplingParams(temperature=0.8, top_p=0.9, num_draft_tokens=4),
    "T 0.7, token": SamplingParams(temperature=0.7, verify="token", num_draft_tokens=4),
    "T 0.7, coupled": SamplingParams(temperature=0.7, verify="coupled", num_draft_tokens=4),
}


def sampling(setup: Setup, recorder: Recorder) -> None:
    """The distribution of what is committed, against the exact distribution of the same engines."""
    for pair in pairs_of(setup)[:2]:
        small = setup.tiny or recorder.left < 15
        if small and not setup.tiny:
            recorder.shorten(f"more than {2 * 2 * 200} samples of {pair.name}")
        plan = AuditPlan(
            settings=default_settings(True),
            num_prefixes=2 if small else 4,
            samples=200 if small else 500,
            depth=2,
            greedy_tokens=16,
        )
        with load(device_package(setup, pair), setup.device) as tested:
            found = audit(
                tested.target,
                tested.draft,
                prompts(3, 24),
                plan,
                shares_cache=tested.draft_shares_cache,
                progress=lambda line: None,
            )
        parts = found.sampling
        recorder.figure(pair.name, found.to_dict())
        recorder.check(
            f"{pair.name} distribution",
            found.passed,
            f"{sum(part.num_samples for part in parts)} samples, p >= "
            f"{min(test.p_value for part in parts for test in part.tests):.2g}, would show "
            f"{max(part.detectable for part in parts):.2f} of total variation",
        )


def reduced_head(setup: Setup, recorder: Recorder) -> None:
    """The same tokens whether logits come to the host whole or reduced, for every way to draw."""
    for pair in pairs_of(setup)[:2]:
        texts, moved = [], []
        for reduces in (False, True):
            with load(device_package(setup, pair), setup.device, reduce_logits=reduces) as tested:
                decoder = decoder_of(tested)
                texts.append(_texts(decoder, 12 if setup.tiny else 64))
                moved.append(bytes_moved(tested.target, tested.draft))
        for name in _WAYS:
            recorder.check(f"{pair.name} {name}", texts[0][name] == texts[1][name])
        recorder.figure(f"{pair.name} bytes moved", {"whole": moved[0], "reduced": moved[1]})
        if setup.on_gpu:
            recorder.check(f"{pair.name} moves less", moved[1] < moved[0], f"{moved}")


def _texts(decoder: SpeculativeDecoder, length: int) -> dict[str, list[tuple[int, ...]]]:
    """Tokens of two prompts by way of drawing, seeded."""
    return {
        name: [
            decoder.generate(prompt, replace(params, max_new_tokens=length, seed=seed)).token_ids
            for seed, prompt in enumerate(prompts(2, 30))
        ]
        for name, params in _WAYS.items()
    }


def cuda_graphs(setup: Setup, recorder: Recorder) -> None:
    """The same logits and texts from captured passes, up to the rounding that their fixed total
    length makes; without a GPU they are refused."""
    if not setup.on_gpu:
        package = device_package(setup, pairs_of(setup)[0])
        _refused(recorder, "CUDA graphs on a CPU", lambda: load(package, "cpu", cuda_graphs=True))
        return
    ids = np.array(prompts(1, 200))
    shown = False
    (setup.work / GRAPHS_WORK).unlink(missing_ok=True)
    for pair in pairs_of(setup)[:3]:
        path = device_package(setup, pair)
        with (
            load(path, setup.device, cuda_graphs=False) as launched,
            load(path, setup.device, cuda_graphs=True) as captured,
        ):
            both = (launched, captured)
            rows = [_rows(one.target, ids) for one in both]
            texts = [_texts(decoder_of(one), 48) for one in both]
            steps = [pass_seconds(one.target, (1,), 1.0)[1] for one in both]
            span = float(np.ptp(rows[0]))
            worst, allowed = float(np.abs(rows[0] - rows[1]).max() / span), TOLERANCE["fp16"]
            told = f"{worst:.2g} of the span, allowed {allowed:g}"
            recorder.check(f"{pair.name} captured logits", worst <= allowed, told)
            for index, prompt in enumerate(prompts(2, 30)):
                same_text(recorder, f"{pair.name} captured text {index}", both, prompt, 48)
            recorder.figure(f"{pair.name} captured texts equal", texts[0] == texts[1])
        shown |= _captured(recorder, pair.name, *steps)
    if shown and all(check.passed for check in recorder.result.checks):
        (setup.work / GRAPHS_WORK).touch()


def _captured(recorder: Recorder, name: str, launched: float, captured: float) -> bool:
    """Whether time shows that a step was captured: launching bounds the steps of tiny models.

    Args:
        recorder: receives both times, and a note where they do not.
        name: of the pair.
        launched: seconds of a step without CUDA graphs.
        captured: seconds with them.
    """
    recorder.figure(f"{name} step seconds", {"launched": launched, "captured": captured})
    if captured < launched:
        return True
    recorder.note(
        f"{name}: not captured, as far as time shows: a step takes {captured * 1e3:.3f} ms with "
        f"CUDA graphs and {launched * 1e3:.3f} ms without"
    )
    return False


def _rows(engine: Engine, ids: np.ndarray) -> np.ndarray:
    """Logits of several widths at several lengths, so that graphs are captured and replayed."""
    found = []
    for start in (16, 40, 150):
        engine.truncate(0)
        engine.forward(ids[:, :start], 0)
        for rows in (1, 5, 1, 3, 5):
            found.append(engine.forward(ids[:, start : start + rows], rows)[0].copy())
            engine.truncate(start)
    engine.truncate(0)
    return np.concatenate(found)


def cross_device(setup: Setup, recorder: Recorder) -> None:
    """Draft and target on different devices, each with a cache of its own."""
    length = 24 if setup.tiny else 48
    for pair in pairs_of(setup)[:2]:
        with (
            load(reference_package(setup, pair), "cpu") as on_cpu,
            load(device_package(setup, pair), setup.device) as tested,
        ):
            ways = {
                f"target on {setup.device}, draft on cpu": (tested.target, on_cpu.draft),
                f"target on cpu, draft on {setup.device}": (on_cpu.target, tested.draft),
            }
            for name, (target, draft) in ways.items():
                decoder = SpeculativeDecoder(target, draft)
                prompt = prompts(1, 40)[0]
                pair_text(recorder, f"{pair.name} {name}", decoder, target, prompt, length)


def refusals(setup: Setup, recorder: Recorder) -> None:
    """What cannot run where it was asked to is an error of one line, never another device."""
    pair = pairs_of(setup)[0]
    package = device_package(setup, pair)
    _refused(recorder, "a GPU that is not there", lambda: load(package, "cuda:99"))
    done = subprocess.run(
        [sys.executable, "-c", _HIDDEN_GPU, str(package)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        cwd=Path(__file__).parents[1],
    )
    told = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
    recorder.check("a hidden GPU", done.returncode == 0, told[:200])
    if setup.on_gpu:
        other = reference_package(setup, pair)
        _refused(recorder, "a CPU's package on a GPU", lambda: load(other, setup.device))
        _refused(
            recorder,
            "a GPU memory limit of 64 KiB",
            lambda: load(package, setup.device, gpu_memory_limit=1 << 16).target.forward(
                np.array(prompts(1, 64)), 64
            ),
        )


_HIDDEN_GPU = """
import sys
from pathlib import Path
from gpu.adapter import load
from specdec.engines import SpecdecError
try:
    load(Path(sys.argv[1]), "cuda:0")
except SpecdecError as error:
    print(error)
else:
    sys.exit("it loaded")
"""


def _refused(recorder: Recorder, name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except SpecdecError as error:
        message = str(error)
        recorder.check(f"{name} is refused", "\n" not in message, message[:200])
    else:
        recorder.check(f"{name} is refused", False, "it was not")
