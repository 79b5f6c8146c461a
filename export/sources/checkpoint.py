"""Open the weights of a Hugging Face model: which files hold them, and every tensor in those.

The files are the ones that transformers would take: `model.safetensors`, else the shards of its
index, else the same of `pytorch_model.bin`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specdec.export.errors import SourceError
from specdec.export.sources.pickled_files import read_pickled
from specdec.export.sources.safetensors_files import read_safetensors
from specdec.export.sources.stored import StoredTensor, check_is_fetched

__all__ = ["Find", "open_checkpoint"]

Find = Callable[[str], Path | None]
"""Where a file of the model is, fetched when it is on the hub; None when there is none."""

_NAMES = ("model.safetensors", "pytorch_model.bin")


def open_checkpoint(name: str, find: Find) -> dict[str, StoredTensor]:
    """Every tensor of a model by its name in the files.

    Args:
        name: of the model, for messages.
        find: finds one of its files.

    Raises:
        SourceError: a file is missing, torn, a Git LFS pointer, or disagrees with the others.
    """
    for single in _NAMES:
        path = find(single)
        if path is not None:
            return dict(_read(path))
        index = find(f"{single}.index.json")
        if index is not None:
            return _shards(index, find)
    raise SourceError(
        f"{name} has no weights by the names that transformers reads; allowed are "
        f"{' or '.join(_NAMES)}, or an index of shards ({_NAMES[0]}.index.json)"
    )


def _read(path: Path) -> Mapping[str, StoredTensor]:
    return read_safetensors(path) if path.suffix == ".safetensors" else read_pickled(path)


def _shards(index: Path, find: Find) -> dict[str, StoredTensor]:
    where = _weight_map(index)
    found: dict[str, StoredTensor] = {}
    for shard in sorted(set(where.values())):
        path = find(shard)
        if path is None:
            missing = next(name for name, file in where.items() if file == shard)
            raise SourceError(
                f"{index} names the shard {shard}, which is not there (it holds {missing}); "
                "download it"
            )
        for name, tensor in _read(path).items():
            if name in found:
                raise SourceError(
                    f"tensor {name} is in {found[name].file.name} and in {shard}; keep one of them"
                )
            found[name] = tensor
    _check_listed(index, where, list(found))
    return found


def _check_listed(index: Path, where: Mapping[str, str], found: Sequence[str]) -> None:
    absent = [name for name in where if name not in set(found)]
    if absent:
        raise SourceError(
            f"{index} lists {absent[0]} in {where[absent[0]]}, which does not hold it; download "
            "the shards and the index again"
        )


def _weight_map(index: Path) -> dict[str, str]:
    check_is_fetched(index)
    try:
        data: Any = json.loads(index.read_text(encoding="utf-8"))
        where = {str(name): str(file) for name, file in data["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{index} is no index of shards (it needs weight_map: tensor to file); download it "
            "again"
        ) from error
    for name, file in where.items():
        if Path(file).name != file:
            raise SourceError(f"{index} lists {name} in {file}, outside its folder")
    return where
