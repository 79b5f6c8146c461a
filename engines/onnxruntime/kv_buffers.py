"""Zeroed buffers for keys and values, on a GPU in one block outside ONNX Runtime's arenas.

The arena from which the Python binding makes values on a GPU grows by powers of two and is not what
`gpu_mem_limit` limits: a cache there could take twice its size. The driver gives what is asked for.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specdec.engines.cuda_driver import CudaDevice
from specdec.engines.devices import Device

__all__ = ["DeviceTensor", "bind_cache", "shapes_of", "zeroed_on_device", "zeroed_values"]

_ALIGNMENT = 256
_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16"}
_DATA_TYPES = {dtype: name for name, dtype in _TYPES.items()}


class _Block:
    """Memory of a GPU that is freed when nothing refers to it any more."""

    def __init__(self, gpu: CudaDevice, num_bytes: int) -> None:
        try:
            self.address = gpu.allocate(num_bytes)
        except BaseException:
            gpu.leave()
            raise
        gpu.step_aside()
        weakref.finalize(self, _free, gpu, self.address).atexit = False


def _free(gpu: CudaDevice, address: int) -> None:
    gpu.activate()
    gpu.free(address)
    gpu.leave()


@dataclass(frozen=True)
class DeviceTensor:
    """A part of a block; it has the methods of an `onnxruntime.OrtValue` that caches use."""

    block: _Block
    address: int
    sizes: tuple[int, ...]
    dtype: str

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self.sizes)

    def data_type(self) -> str:
        """Such as "tensor(float16)"."""
        return _DATA_TYPES[self.dtype]


def zeroed_on_device(
    shapes: Mapping[str, tuple[tuple[int, ...], str]],
    device: Device,
    open_device: Callable[[int], CudaDevice] = CudaDevice,
) -> dict[str, Any]:
    """Zeroed tensors in one block of a GPU; it is freed with the last of them.

    Args:
        shapes: (sizes, "float32" or "float16") by name.
        device: the GPU.
        open_device: opens GPU number N.

    Raises:
        DeviceError: the driver does not work, or has not that much memory.
    """
    places: dict[str, int] = {}
    end = 0
    for name, (sizes, dtype) in shapes.items():
        places[name] = end
        num_bytes = math.prod(sizes) * np.dtype(dtype).itemsize
        end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
    block = _Block(open_device(device.index), end)
    return {
        name: DeviceTensor(block, block.address + places[name], sizes, dtype)
        for name, (sizes, dtype) in shapes.items()
    }


def zeroed_values(
    shapes: Mapping[str, tuple[tuple[int, ...], str]], device: Device
) -> dict[str, Any]:
    """Zeroed buffers on a device: on the CPU the system hands out pages as they fill.

    Args:
        shapes: (sizes, "float32" or "float16") by name.
        device: where.

    Returns:
        `onnxruntime.OrtValue` or, on a GPU, `DeviceTensor` by name.
    """
    if device.kind == "cuda":
        return zeroed_on_device(shapes, device)
    from onnxruntime import OrtValue

    return {
        name: OrtValue.ortvalue_from_numpy(np.zeros(sizes, dtype), device.kind, device.index)
        for name, (sizes, dtype) in shapes.items()
    }


def shapes_of(buffers: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Sizes and element types of what `zeroed_values` made."""
    return {
        name: (tuple(value.shape()), _TYPES[value.data_type()]) for name, value in buffers.items()
    }


def bind_cache(binding: Any, name: str, value: Any, device: Device, *, is_input: bool) -> None:
    """Bind a buffer of a cache to an input or output of a session."""
    if isinstance(value, DeviceTensor):
        bind = binding.bind_input if is_input else binding.bind_output
        element = np.dtype(value.dtype).type
        bind(name, device.kind, device.index, element, value.shape(), value.address)
    else:
        bind = binding.bind_ortvalue_input if is_input else binding.bind_ortvalue_output
        bind(name, value)
