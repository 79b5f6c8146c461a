"""The calls of the CUDA driver that an engine on a GPU needs, through ctypes.

No Python package of CUDA is required: `libcuda.so.1` comes with the driver itself. Every call
that fails raises `DeviceError` with the driver's own words. Pointers and handles are integers.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines.devices import Device
from specdec.engines.errors import DeviceError

__all__ = ["CudaDevice", "open_driver", "require_memory", "visiting"]

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_INTEGRATED = 18  # CU_DEVICE_ATTRIBUTE_INTEGRATED
_DEFAULT_STREAM = 0
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream


def open_driver() -> Any:
    """The driver's library.

    Raises:
        DeviceError: there is none on this machine.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            "libcuda.so.1, the NVIDIA driver's library, is not on this machine; install the "
            'driver, or choose device="cpu" with a package for ONNX Runtime'
        ) from error


class CudaDevice:
    """One GPU: its primary context, which TensorRT and others in this process share."""

    def __init__(self, index: int, library: Any | None = None) -> None:
        """Open GPU `index`.

        Args:
            index: which GPU, counted from 0.
            library: the driver's library; None opens it.

        Raises:
            DeviceError: no driver, no such GPU, or the driver does not work.
        """
        self._library = open_driver() if library is None else library
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._device = device
        self._before = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(self._before))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        self.activate()

    def activate(self) -> None:
        """Make the GPU current for the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    def step_aside(self) -> None:
        """Make current again what was before; the primary context stays retained."""
        self._call("cuCtxSetCurrent", self._before)

    def release(self) -> None:
        """Give the primary context back."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def leave(self) -> None:
        """Give the primary context back and make current what was before."""
        self.step_aside()
        self.release()

    @property
    def compute_capability(self) -> str:
        """Such as "8.9"."""
        parts = []
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
            parts.append(str(value.value))
        return ".".join(parts)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the GPU.

        A GPU that shares the system's memory (Jetson) does not count memory that the system can
        reclaim, such as its file cache: there the system's own figure is used too.
        """
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        shared = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(shared), _INTEGRATED, self._device)
        available = _available_memory() if shared.value else 0
        return max(free.value, min(available, total.value)), total.value

    def allocate(self, num_bytes: int) -> int:
        """Zeroed device memory; its address.

        The zeros are there when this returns: they are written on the default stream, which streams
        of `create_stream` do not wait for, so a pass could have written its keys before.
        """
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(num_bytes))
        try:
            self._call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(0), ctypes.c_size_t(num_bytes))
            self.synchronize(_DEFAULT_STREAM)
        except BaseException:
            self.free(pointer.value)
            raise
        return pointer.value

    def free(self, address: int) -> None:
        """Give device memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def pinned(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A zeroed host array in page-locked memory, which asynchronous copies need.

        `free_pinned` must be given every array made here.
        """
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pointer = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        assert pointer.value is not None
        memory = (ctypes.c_ubyte * size).from_address(pointer.value)
        array: NDArray[Any] = np.frombuffer(memory, dtype).reshape(shape)
        array[...] = 0
        return array

    def free_pinned(self, array: NDArray[Any]) -> None:
        """Give an array of `pinned` back; it must not be read any more."""
        self._call("cuMemFreeHost", ctypes.c_void_p(array.ctypes.data))

    def create_stream(self) -> int:
        """A stream of its own; its handle."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        assert stream.value is not None
        return stream.value

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream."""
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def synchronize(self, stream: int) -> None:
        """Wait for everything queued on a stream."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def to_device(self, address: int, array: NDArray[Any], stream: int) -> None:
        """Queue a copy of a contiguous pinned array to device memory."""
        source, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        handle = ctypes.c_void_p(stream)
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), source, size, handle)

    def to_host(self, array: NDArray[Any], address: int, stream: int) -> None:
        """Queue a copy of device memory into a contiguous pinned array."""
        destination, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        handle = ctypes.c_void_p(stream)
        self._call("cuMemcpyDtoHAsync_v2", destination, ctypes.c_uint64(address), size, handle)

    def _call(self, name: str, *arguments: Any) -> None:
        function: Callable[..., int] = getattr(self._library, name)
        code = function(*arguments)
        if code:
            raise DeviceError(f"{name} failed: {self._words(code)}")

    def _words(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorString(code, ctypes.byref(text)) or text.value is None:
            return f"CUDA driver error {code}"
        return f"{text.value.decode(errors='replace')} (CUDA driver error {code})"


@contextmanager
def visiting(
    index: int, open_device: Callable[[int], CudaDevice] = CudaDevice
) -> Iterator[CudaDevice]:
    """GPU number `index` for a query; the thread's own context is current again afterwards."""
    gpu = open_device(index)
    try:
        yield gpu
    finally:
        gpu.leave()


def _available_memory() -> int:
    """Bytes that the system could give to a process, 0 where it gives no figure."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


def require_memory(gpu: CudaDevice, needed: int, who: str, device: Device) -> None:
    """Check that a GPU has room, before the time to fill it is spent.

    Args:
        gpu: the GPU.
        needed: bytes.
        who: subject and verb of the message: "the draft engine needs".
        device: how the user called the GPU.

    Raises:
        DeviceError: less is free; the message says how much.
    """
    free, total = gpu.memory()
    if needed > free:
        raise DeviceError(
            f"{who} at least {needed / 1e9:.2f} GB of {device}, which has "
            f"{free / 1e9:.2f} GB free of {total / 1e9:.2f}; free some, or export with a smaller "
            "--max-length or precision"
        )
