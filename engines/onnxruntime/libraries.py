"""Load the libraries that ONNX Runtime's GPU providers need, and name those that are missing.

ONNX Runtime itself goes on without a provider whose libraries are missing, and says so in its log
alone. cuDNN is loaded where it is installed, and asked for only by providers that are linked to it:
nothing that an engine computes needs it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.metadata
import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from specdec.engines.devices import Device
from specdec.engines.errors import DeviceError

__all__ = ["find_cuda_libraries", "find_tensorrt_libraries", "load_provider"]


def find_cuda_libraries(device: Device) -> None:
    """Load CUDA and cuDNN, from NVIDIA's Python packages where those are installed.

    Args:
        device: the GPU, for messages.

    Raises:
        DeviceError: a library that the provider needs is missing; the message says which.
    """
    import onnxruntime

    _preload(onnxruntime)
    load_provider(
        _folder(onnxruntime),
        "cuda",
        f"ONNX Runtime {onnxruntime.__version__} cannot use {device}",
        "install the CUDA and cuDNN it was built for, such as by "
        'pip install "onnxruntime-gpu[cuda,cudnn]"',
    )


def find_tensorrt_libraries(device: Device) -> None:
    """Load TensorRT, from its Python package where that is installed, for ONNX Runtime's provider.

    Args:
        device: the GPU, for messages.

    Raises:
        DeviceError: TensorRT, or the version of it that the provider was built for, is missing;
            the message says which library was looked for, and what is installed.
    """
    import onnxruntime

    with contextlib.suppress(ImportError, OSError):  # importing it loads libnvinfer
        importlib.import_module("tensorrt")
    try:
        installed = f"tensorrt {importlib.metadata.version('tensorrt')} is installed"
    except importlib.metadata.PackageNotFoundError:
        installed = "the package tensorrt is not installed"
    load_provider(
        _folder(onnxruntime),
        "tensorrt",
        f"ONNX Runtime {onnxruntime.__version__} cannot use TensorRT on {device}",
        f"{installed}; install the version whose libnvinfer is named here, such as by "
        'pip install "tensorrt>=10.15,<11"',
    )


def load_provider(folder: Path, kind: str, failure: str, advice: str) -> None:
    """Load the library of a provider; without one ONNX Runtime will say what it lacks.

    Args:
        folder: where ONNX Runtime keeps its libraries.
        kind: "cuda" or "tensorrt".
        failure: how the message begins.
        advice: how it ends.

    Raises:
        DeviceError: the library, or one that it is linked to, cannot be loaded.
    """
    shared, provider = (folder / f"libonnxruntime_providers_{name}.so" for name in ("shared", kind))
    if not provider.is_file():  # another build or system
        return
    try:
        ctypes.CDLL(str(shared), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(provider))
    except OSError as error:
        raise DeviceError(f"{failure}: {error}; {advice}") from error


def _folder(onnxruntime: Any) -> Path:
    return Path(onnxruntime.__file__).parent / "capi"


@functools.cache
def _preload(onnxruntime: Any) -> None:
    """Load the libraries once a process; a missing one is printed, so stdout is kept clean."""
    if hasattr(onnxruntime, "preload_dlls"):
        with redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls()
