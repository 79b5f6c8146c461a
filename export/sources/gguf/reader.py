"""Read the metadata and the table of tensors of one `.gguf` file.

The format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version, counts,
key-value pairs, tensor infos, then aligned tensor data.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specdec.export.errors import SourceError
from specdec.export.sources.stored import check_is_fetched

__all__ = ["GgufFile", "TensorInfo", "read_gguf"]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor is and how it is stored."""

    name: str
    file: Path
    kind: str
    """Name of the ggml type: "F32", "Q4_K", ..."""
    shape: tuple[int, ...]
    """Row-major, the reverse of what the file lists."""
    offset: int
    """First byte in the file."""
    num_bytes: int


@dataclass(frozen=True)
class GgufFile:
    """One file: its metadata and its tensors."""

    path: Path
    metadata: dict[str, Any]
    """Numbers, booleans and strings; arrays of strings as lists, of numbers as numpy arrays."""
    tensors: tuple[TensorInfo, ...]


def read_gguf(path: Path) -> GgufFile:
    """Read everything of a file but the tensors' data.

    Raises:
        SourceError: it is no GGUF file, torn, or of a version or tensor type that is unknown.
    """
    check_is_fetched(path)
    if path.stat().st_size < 24:
        raise SourceError(f"{path} cannot be read: it is no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(path, data).read()


class _Reader:
    """A cursor over the mapped bytes of a file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._at = path, data, 0

    def read(self) -> GgufFile:
        if self._take(4) != _MAGIC:
            raise SourceError(f"{self._path} cannot be read: it is no GGUF file")
        version = self._number("<u4")
        if version not in _VERSIONS:
            raise SourceError(
                f"{self._path} is GGUF of version {version}; allowed are little-endian files of "
                f"version {' or '.join(map(str, _VERSIONS))}"
            )
        num_tensors, num_keys = self._number("<u8"), self._number("<u8")
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            if key in metadata:
                raise SourceError(f"{self._path}: the key {key} is there twice")
            metadata[key] = self._value(self._number("<u4"))
        infos = [self._tensor() for _ in range(num_tensors)]
        alignment = int(metadata.get("general.alignment", 32))
        if alignment <= 0 or alignment & (alignment - 1):
            raise SourceError(
                f"{self._path}: general.alignment is {alignment}; allowed is a power of 2"
            )
        start = -(-self._at // alignment) * alignment
        return GgufFile(self._path, metadata, self._placed(infos, start))

    def _placed(self, infos: list[TensorInfo], start: int) -> tuple[TensorInfo, ...]:
        names: set[str] = set()
        placed = []
        for info in infos:
            if info.name in names:
                raise SourceError(f"{self._path}: the tensor {info.name} is there twice")
            names.add(info.name)
            offset = start + info.offset
            if offset + info.num_bytes > len(self._data):
                raise SourceError(
                    f"{self._path} ends at byte {len(self._data)}, within or before tensor "
                    f"{info.name}; download the file again"
                )
            placed.append(
                TensorInfo(info.name, info.file, info.kind, info.shape, offset, info.num_bytes)
            )
        return tuple(placed)

    def _tensor(self) -> TensorInfo:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        name = self._string()
        shape = tuple(self._number("<u8") for _ in range(self._number("<u4")))[::-1]
        number, offset = self._number("<u4"), self._number("<u8")
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise SourceError(
                f"{self._path}: tensor {name} is stored as ggml type {number}, which the gguf "
                "package installed here does not know; update it"
            ) from error
        block, size = GGML_QUANT_SIZES[kind]
        if shape and shape[-1] % block:
            raise SourceError(
                f"{self._path}: tensor {name} has rows of {shape[-1]} values, and {kind.name} "
                f"packs {block} at a time; convert the model again"
            )
        return TensorInfo(
            name, self._path, kind.name, shape, offset, math.prod(shape) // block * size
        )

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, count = self._number("<u4"), self._number("<u8")
            if element in _SCALARS:
                dtype = np.dtype(_SCALARS[element])
                return np.frombuffer(self._take(dtype.itemsize * count), dtype)
            return [self._value(element) for _ in range(count)]
        if kind not in _SCALARS:
            raise SourceError(f"{self._path} cannot be read: it holds a value of type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        number = np.frombuffer(self._take(dtype.itemsize), dtype)[0]
        # The shortest decimal of a float32 is what its author wrote: 1e-05, not 9.99999975e-06.
        return float(str(number)) if dtype == np.float32 else number.item()

    def _string(self) -> str:
        data = self._take(self._number("<u8"))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{self._path} cannot be read: text at byte {self._at} is not UTF-8"
            ) from error

    def _number(self, dtype: str) -> int:
        if dtype == "<u4":
            return int(struct.unpack("<I", self._take(4))[0])
        return int(struct.unpack("<Q", self._take(8))[0])

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise SourceError(
                f"{self._path} cannot be read: it ends at byte {len(self._data)}, within its "
                "header; download the file again"
            )
        return self._data[start : self._at]
