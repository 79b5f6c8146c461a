"""Read what a `.safetensors` file holds from its header, and single values from its bytes.

The format: 8 bytes with the length of the header (little-endian), the header (JSON: name to dtype,
shape and byte offsets), then the tensors, row-major, little-endian.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.export.errors import SourceError
from specdec.export.sources.stored import check_is_fetched

__all__ = ["SafetensorsTensor", "read_safetensors"]

_FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4}
_BYTES |= {"F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class SafetensorsTensor:
    """A tensor of a `.safetensors` file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """First byte in the file."""

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """As `StoredTensor.at`."""
        if not len(positions):
            return np.empty(0, np.float32)
        stored = np.memmap(
            self.file, _FLOATS[self.dtype], "r", self.offset, (math.prod(self.shape),)
        )
        picked = stored[positions]
        if self.dtype == "BF16":
            return (picked.astype(np.uint32) << 16).view(np.float32)
        return picked.astype(np.float32)


def read_safetensors(path: Path) -> dict[str, SafetensorsTensor]:
    """All tensors of a file by name.

    Raises:
        SourceError: the file is torn, no `.safetensors` file, or stores values of a kind that are
            no full-precision weights.
    """
    check_is_fetched(path)
    header, start = _header(path)
    size = path.stat().st_size
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
            begin, end = (int(n) for n in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"{path}: the header's entry {name} is malformed") from error
        if dtype in _BYTES and end - begin != _BYTES[dtype] * math.prod(shape):
            raise SourceError(
                f"{path}: tensor {name} takes {end - begin} bytes, but {dtype} of shape "
                f"{list(shape)} needs {_BYTES[dtype] * math.prod(shape)}; download the file again"
            )
        if begin < 0 or start + end > size:
            raise SourceError(
                f"{path} ends at byte {size}, within tensor {name}; download the file again"
            )
        found[name] = SafetensorsTensor(name, path, dtype, shape, start + begin)
    return found


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header and the first byte after it."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        text = file.read(length) if length <= _LONGEST_HEADER else b""
    if not length or len(text) != length:
        raise SourceError(
            f"the weights of {path.parent} cannot be read: {path.name} is no .safetensors file, or "
            "is torn; download it again"
        )
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise SourceError(f"{path}: its header cannot be read ({error})") from error
    if not isinstance(header, dict):
        raise SourceError(f"{path}: its header is no table of tensors")
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, value in pairs:
        if name in names:
            raise ValueError(f"{name} is there twice")
        names[name] = value
    return names
