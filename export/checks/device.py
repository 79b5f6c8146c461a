"""Where an export runs its engines to check them, and whether their times mean anything there."""

from __future__ import annotations

from specdec.engines.devices import Device, available_devices
from specdec.export.options import ExportOptions

__all__ = ["CPU_NOTE", "check_device", "is_measured_here"]

CPU_NOTE = (
    "the engines are checked on the CPU, whose times say nothing of a GPU: the package holds no "
    "costs and no report of speed; measure it where it runs (specdec-inspect --measure)"
)
"""For packages of which `is_measured_here` is false."""


def check_device(options: ExportOptions) -> Device:
    """The GPU that ONNX Runtime's engines are made for, when it has one here; else the CPU.

    The graphs of a TensorRT package are always checked on the CPU, before they are built.
    """
    if options.device == "cuda":
        for device in available_devices():
            if device.kind == "cuda":
                return device
    return Device("cpu")


def is_measured_here(options: ExportOptions) -> bool:
    """Whether the engines are checked on the kind of device they are made for."""
    return options.is_for_gpu == (check_device(options).kind == "cuda")
