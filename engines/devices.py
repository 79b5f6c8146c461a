"""Devices that engines run on, and checks that this installation and machine have them.

`onnxruntime` and `onnxruntime-gpu` install the same module, and the GPU build imports on a
machine without a GPU. So two questions are kept apart: does the installed build have the
device's provider (`require_provider`), and is there a GPU (`available_devices`)?
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

from specdec.engines.errors import DeviceError, MissingDependencyError

__all__ = ["TENSORRT", "Device", "available_devices", "require_provider"]

TENSORRT = "TensorrtExecutionProvider"
"""ONNX Runtime's provider over TensorRT."""

_ALLOWED = '"cpu", "cuda" or "cuda:N" with N = 0, 1, ...'
_PATTERN = re.compile(r"cpu|cuda(?::(0|[1-9][0-9]{0,2}))?")
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_WHEELS = {"cpu": "onnxruntime", "cuda": "onnxruntime-gpu"}


@dataclass(frozen=True, order=True)
class Device:
    """One place to run an engine; `str()` gives "cpu" or "cuda:N".

    Raises:
        DeviceError: the kind is not "cpu" or "cuda", or the index is negative or, on the
            CPU, not 0.
    """

    kind: str
    """"cpu" or "cuda"."""
    index: int = 0
    """Which GPU, counted from 0; always 0 for the CPU."""

    def __post_init__(self) -> None:
        legal = self.kind in _PROVIDERS and type(self.index) is int and 0 <= self.index <= 999
        if not legal or (self.kind == "cpu" and self.index):
            raise DeviceError(f"device {self.kind!r}:{self.index!r}; allowed is {_ALLOWED}")

    @classmethod
    def parse(cls, text: str | Device) -> Device:
        """Read "cpu", "cuda" (the first GPU) or "cuda:N"; a `Device` is returned as it is.

        Raises:
            DeviceError: anything else.
        """
        if isinstance(text, Device):
            return text
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise DeviceError(f"device {text!r} is not understood; allowed is {_ALLOWED}")
        return cls(match[0].partition(":")[0], int(match[1] or 0))

    @property
    def provider(self) -> str:
        """ONNX Runtime's name for the execution provider of this kind of device."""
        return _PROVIDERS[self.kind]

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"


def require_provider(device: Device, *, tensorrt: bool = False) -> None:
    """Check that the installed ONNX Runtime can run on `device`, before any work.

    Args:
        device: where an engine should run.
        tensorrt: on a GPU, with TensorRT's provider.

    Raises:
        MissingDependencyError: no ONNX Runtime, or a build without the device's provider; the
            message holds the pip line.
        DeviceError: the provider is there, but this machine has no such GPU.
    """
    onnxruntime = _import_onnxruntime(device.kind)
    if device.provider not in onnxruntime.get_available_providers():
        raise MissingDependencyError(
            f"device {device} needs {device.provider}, which the installed ONNX Runtime "
            f"{onnxruntime.__version__} lacks; run: pip uninstall onnxruntime "
            f"onnxruntime-gpu && pip install {_WHEELS[device.kind]}"
        )
    if tensorrt and device.kind == "cuda" and TENSORRT not in onnxruntime.get_available_providers():
        raise MissingDependencyError(
            f"the package needs {TENSORRT} on {device}, which the installed ONNX Runtime "
            f"{onnxruntime.__version__} lacks; install a build that has it, or export the package "
            "with --backend onnxruntime"
        )
    count, found = _find_gpus() if device.kind == "cuda" else (0, "")
    if device.kind == "cuda" and device.index >= count:
        raise DeviceError(
            f"device {device} is not on this machine, which has {found}; "
            'choose one that is there, or device="cpu"'
        )


def available_devices() -> list[Device]:
    """List the devices engines can run on here: the CPU first, then every usable GPU.

    Raises:
        MissingDependencyError: ONNX Runtime is not installed.
    """
    providers = _import_onnxruntime("cpu").get_available_providers()
    gpus = _find_gpus()[0] if _PROVIDERS["cuda"] in providers else 0
    return [Device("cpu"), *(Device("cuda", index) for index in range(gpus))]


def _import_onnxruntime(kind: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        raise MissingDependencyError(
            f"ONNX Runtime cannot be imported ({' '.join(str(error).split())}); run: "
            f"pip install {_WHEELS[kind]}"
        ) from error
    return onnxruntime


def _was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C is behind an error: extension modules turn it into an ImportError."""
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        found = pending.pop()
        if found is None or any(found is other for other in seen):
            continue
        if isinstance(found, KeyboardInterrupt):
            return True
        seen.append(found)
        pending += [found.__cause__, found.__context__]
    return False


def _find_gpus() -> tuple[int, str]:
    """Ask the driver, which heeds CUDA_VISIBLE_DEVICES.

    Returns:
        How many GPUs there are, and that in words: without any, what is missing.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return 0, f"an NVIDIA driver that finds no usable GPU (CUDA error {code})"
    return count.value, f"cuda:0 .. cuda:{count.value - 1}" if count.value else "no GPU"
