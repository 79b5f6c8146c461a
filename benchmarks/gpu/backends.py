"""The TensorRT backends beside the CPU: logits, texts and times of one tiny pair each."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import numpy as np
from gpu.adapter import load
from gpu.models import PAIRS, export_for, prompts, reference_package
from gpu.parity import TOLERANCE, compare, decoder_of, pair_text, same_text
from gpu.passes import pass_seconds
from gpu.ready import is_ready
from gpu.sections import NotHereError, Recorder, Setup

from specdec.engines.cuda_driver import visiting
from specdec.engines.devices import Device
from specdec.engines.errors import SpecdecError
from specdec.engines.tensorrt.library import import_tensorrt

__all__ = ["BACKENDS", "export_backend", "provider", "rtx"]

BACKENDS = ("onnxruntime-tensorrt", "tensorrt-rtx")
"""Whose packages can be made on any machine."""
_PAIR = PAIRS[0]
_WIDTHS = range(1, 10)


def _path(setup: Setup, backend: str) -> Path:
    return setup.work / _PAIR.name / backend


def known_capabilities() -> tuple[str, ...]:
    """Compute capabilities that the installed TensorRT-RTX builds for.

    Raises:
        MissingDependencyError: it is not installed.
    """
    names = import_tensorrt("tensorrt-rtx").ComputeCapability.__members__
    return tuple(f"{name[2:-1]}.{name[-1]}" for name in names if name.startswith("SM"))


def export_backend(setup: Setup, recorder: Recorder, backend: str) -> Path:
    """The package of a backend, exported unless it is there.

    Raises:
        NotHereError: it was to be made elsewhere and was not, or its library is not installed.
    """
    path = _path(setup, backend)
    if path.exists():
        return path
    if is_ready(setup):
        raise NotHereError(f"{_PAIR.name}/{backend} is not among the packages")
    options = {}
    try:
        if backend == "tensorrt-rtx":
            options["compute_capabilities"] = known_capabilities()
        part = path.with_name(f"{backend}.part")
        shutil.rmtree(part, ignore_errors=True)  # of a run that was cut off
        export_for(setup, _PAIR, part, recorder, backend=backend, **options)
    except SpecdecError as error:
        raise NotHereError(f"no package for {backend}: {error}") from error
    part.rename(path)
    return path


def _check(backend: str, setup: Setup, recorder: Recorder) -> None:
    if backend == "tensorrt-rtx":
        _require_capability(setup)
    path = export_backend(setup, recorder, backend)
    ids = np.array(prompts(1, 320))
    with (
        load(reference_package(setup, _PAIR), "cpu") as reference,
        load(path, setup.device) as tested,
    ):
        for name, kind in (("target", "fp16"), ("draft", "quantized")):
            first, second = getattr(reference, name), getattr(tested, name)
            found = compare(first, second, ids, _WIDTHS)
            worst = max(found, key=lambda key: found[key])
            recorder.figure(name, found)
            told = f"{found[worst]:.2g} of the span at {worst}, allowed {TOLERANCE[kind]:g}"
            recorder.check(f"{name} logits", found[worst] <= TOLERANCE[kind], told)
        for index, prompt in enumerate(prompts(2, 40)):
            pair_text(recorder, f"text {index}", decoder_of(tested), tested.target, prompt, 24)
            same_text(recorder, f"text {index} is the CPU's", (reference, tested), prompt, 24)
        for name in ("target", "draft"):
            seconds = pass_seconds(getattr(tested, name), (1, 5), recorder.left / 4)
            recorder.figure(f"{name} seconds", {str(rows): t for rows, t in seconds.items()})


def _require_capability(setup: Setup) -> None:
    """Skip where TensorRT-RTX executes nothing."""
    if not setup.on_gpu:
        raise NotHereError("TensorRT-RTX engines run on a GPU alone")
    try:
        known = known_capabilities()
    except SpecdecError as error:
        raise NotHereError(str(error)) from error
    with visiting(Device.parse(setup.device).index) as gpu:
        capability = gpu.compute_capability
    if capability not in known:
        raise NotHereError(f"TensorRT-RTX does not know compute capability {capability}")


provider = partial(_check, "onnxruntime-tensorrt")
rtx = partial(_check, "tensorrt-rtx")
