"""A tensor as a file holds it, readable in spots: what every check of the weights compares with.

Each kind of file has its own reader. None of them is the one that loads the model, so that what
the export made can be held against the bytes of the source themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specdec.export.errors import SourceError

__all__ = ["StoredTensor", "check_is_fetched", "spots"]

_POINTER = b"version https://git-lfs.github.com/spec/"


class StoredTensor(Protocol):
    """One tensor of a source, seen as the parameter it becomes."""

    @property
    def name(self) -> str:
        """What the file calls it."""
        ...

    @property
    def file(self) -> Path:
        """The file that holds it."""
        ...

    @property
    def dtype(self) -> str:
        """What the file stores: "F32", "BF16", "Q4_K", ..."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter."""
        ...

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Values at `positions`, int64 [N], of the parameter in row-major order; float32 [N]."""
        ...


def spots(count: int, wanted: int) -> NDArray[np.int64]:
    """At most `wanted` positions below `count`, both ends among them; int64 [N], ascending.

    The others are drawn, from the same seed each time: even steps could all meet one row.
    """
    if count <= wanted:
        return np.arange(count)
    drawn = np.random.default_rng(count).integers(0, count, wanted - 2)
    return np.unique([0, *drawn, count - 1])


def check_is_fetched(path: Path) -> None:
    """Refuse a Git LFS pointer in place of the file itself.

    Raises:
        SourceError: `path` is one.
    """
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise SourceError(
                f"{path} is a Git LFS pointer; fetch the file itself (git lfs pull), or download "
                "the model again"
            )
