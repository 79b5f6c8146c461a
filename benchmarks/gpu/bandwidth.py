"""Measure the copy bandwidth of the device, which bounds the speed of a pass."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np
from gpu.adapter import free_memory
from gpu.sections import Recorder, Setup

import specdec.engines.onnxruntime
from specdec.engines import Device
from specdec.engines.onnxruntime.session import create_session
from specdec.runtime.report.measuring.machine import copy_bandwidth

__all__ = ["bandwidth", "copy_on_device", "elements_for"]

_IDENTITY = Path(specdec.engines.onnxruntime.__file__).with_name("heads") / "full.onnx"
_ELEMENTS = 1 << 29
_REPEATS = 20


def bandwidth(setup: Setup, recorder: Recorder) -> None:
    """Bytes read and written per second by a copy on the device, and on the host."""
    recorder.figure("host_copy_bytes_per_second", copy_bandwidth())
    free = free_memory(setup.device)
    if free is not None:
        found = copy_on_device(setup.device, elements_for(free))
    else:
        found = recorder.result.figures["host_copy_bytes_per_second"]
    recorder.figure("copy_bytes_per_second", found)
    recorder.say(f"  a copy on {setup.device} moves {found / 1e9:.0f} GB/s, both ways counted")


def elements_for(free: int) -> int:
    """Float32 elements of a buffer, so that two fill no more than half of `free` bytes."""
    return min(_ELEMENTS, free // 16)


def copy_on_device(device: str, elements: int) -> float:
    """Bytes per second, read and written, of copying float32 buffers through ONNX Runtime.

    A graph of one `Identity` between bound buffers is one copy on the device; the head that brings
    whole logits to the host is one.

    Args:
        device: "cpu" or "cuda:N".
        elements: of a buffer.
    """
    from onnxruntime import OrtValue

    place = Device.parse(device)
    session = create_session(_IDENTITY, name="copy", device=place)
    binding = session.io_binding()
    buffers = [
        OrtValue.ortvalue_from_shape_and_type([1, 1, elements], np.float32, place.kind, place.index)
        for _ in "ab"
    ]
    binding.bind_ortvalue_input("logits", buffers[0])
    binding.bind_ortvalue_output("rows", buffers[1])
    seconds = []
    for _ in range(_REPEATS):
        began = perf_counter()
        session.run_with_iobinding(binding)
        seconds.append(perf_counter() - began)
    return 2.0 * 4.0 * elements / float(np.median(seconds[3:]))
