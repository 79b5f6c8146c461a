"""All parts of a GGUF model: one file, or those that `gguf-split` made of it.

A split model is NAME-00001-of-00003.gguf and so on; every part says its number, how many there
are, and how many tensors they hold together. Only the first has the model's metadata.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.export.errors import SourceError
from specdec.export.sources.gguf.reader import GgufFile, TensorInfo, read_gguf

__all__ = ["GgufModel", "open_gguf"]

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True)
class GgufModel:
    """The metadata and the tensors of a model, whatever files they are in."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    num_files: int


def open_gguf(path: Path) -> GgufModel:
    """Read a GGUF model, with the parts that lie beside the one that is named.

    Raises:
        SourceError: as `read_gguf`; or a part is missing, or they do not belong together.
    """
    named = read_gguf(path)
    count = int(named.metadata.get(_COUNT, 1))
    if count <= 1:
        return GgufModel(path, named.metadata, {t.name: t for t in named.tensors}, 1)
    parts = [_part(path, named, number, count) for number in range(count)]
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise SourceError(
                    f"tensor {tensor.name} is in {tensors[tensor.name].file.name} and in "
                    f"{part.path.name}: they are no parts of one model"
                )
            tensors[tensor.name] = tensor
    promised = named.metadata.get(_TENSORS)
    if promised is not None and int(promised) != len(tensors):
        raise SourceError(
            f"the {count} parts of {path} hold {len(tensors)} tensors and say {int(promised)}; "
            "download them again"
        )
    return GgufModel(parts[0].path, parts[0].metadata, tensors, count)


def _part(path: Path, named: GgufFile, number: int, count: int) -> GgufFile:
    """Part `number`, from 0."""
    if int(named.metadata.get(_NUMBER, -1)) == number:
        return named
    match = _PART.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise SourceError(
            f"{path} is part of a model split in {count}, whose files are named "
            f"NAME-00001-of-{count:05}.gguf; give it its name back"
        )
    other = path.with_name(f"{match['stem']}-{number + 1:05}-of-{count:05}.gguf")
    if not other.is_file():
        raise SourceError(
            f"{path} is part of a model split in {count}, and {other.name} is not beside it; "
            "download all parts into one folder"
        )
    part = read_gguf(other)
    if part.metadata.get(_NUMBER) != number or part.metadata.get(_COUNT) != count:
        raise SourceError(
            f"{other} is not part {number + 1} of {count}, as its name says; download it again"
        )
    return part
