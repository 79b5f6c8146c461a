"""View the arrays of a host as NumPy arrays without a copy.

Anything that speaks DLPack (`__dlpack__`: torch, CuPy on the host, JAX, a C++ tensor bound with
nanobind or pybind11) or the buffer protocol (`memoryview`, `array`, `ctypes`, a `py::buffer`)
is used in place. An array that would need a copy (wrong dtype, memory on a GPU) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from specdec.runtime.embed.errors import BadArgumentError

__all__ = ["view"]


def view(
    source: object,
    dtypes: Sequence[DTypeLike],
    shape: tuple[int, ...] | None = None,
    *,
    name: str = "the buffer",
    writable: bool = False,
) -> NDArray[Any]:
    """View the memory of `source` as an array.

    Args:
        source: a NumPy array, or an object with DLPack or the buffer protocol.
        dtypes: the allowed element types.
        shape: regroup the elements to this shape; None asks for one dimension.
        name: how messages call it.
        writable: whether the caller is going to write into it.

    Returns:
        An array over the same memory, kept alive by it.

    Raises:
        BadArgumentError: no such protocol, another dtype, another number of elements, memory
            that is not contiguous or not on the host, or read-only memory to be written.
    """
    array = _wrap(source, name)
    allowed = [np.dtype(item) for item in dtypes]
    if array.dtype not in allowed:
        names = " or ".join(str(item) for item in allowed)
        raise BadArgumentError(f"{name} holds {array.dtype}; allowed is {names}, without a copy")
    if not array.flags.c_contiguous:
        raise BadArgumentError(f"{name} is not contiguous; pass rows that lie one after another")
    if writable and not array.flags.writeable:
        raise BadArgumentError(f"{name} is read-only; pass memory that can be written")
    if shape is None:
        shape = (array.size,)
    if array.size != math.prod(shape):
        raise BadArgumentError(
            f"{name} has shape {list(array.shape)}; allowed is {list(shape)}, or as many elements"
        )
    return array.reshape(shape)


def _wrap(source: object, name: str) -> NDArray[Any]:
    if isinstance(source, np.ndarray):
        return source
    try:
        if hasattr(source, "__dlpack__"):
            return np.from_dlpack(source)
        return np.asarray(memoryview(source))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise BadArgumentError(
            f"{name} is a {type(source).__name__} that cannot be viewed ({reason}); "
            "allowed is host memory with DLPack or the buffer protocol"
        ) from error
