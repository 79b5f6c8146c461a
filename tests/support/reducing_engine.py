"""A table engine that reduces its logits, as one on a device would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specdec.engines import ReducedRow, Reduction
from tests.support.table_engine import TableEngine


class ReducingTableEngine(TableEngine):
    """Counts, over all its instances, the rows it reduced."""

    total = 0

    def reduces(self, reduction: Reduction) -> bool:
        return reduction.count <= self.info.vocab_size

    def forward_reduced(
        self, token_ids: NDArray[np.int64], num_logits: int, reduction: Reduction
    ) -> list[ReducedRow]:
        rows = self.forward(token_ids, num_logits)[0]
        ReducingTableEngine.total += len(rows)
        size = self.info.vocab_size
        return [reduce_row(row, size, reduction, lambda row=row: row) for row in rows]


def reduce_row(
    row: NDArray[Any],
    vocab_size: int,
    reduction: Reduction,
    full: Callable[[], NDArray[Any]],
    mass_error: float = 0.0,
) -> ReducedRow:
    """What a device makes of a row: equal logits in an order of its own, a mass that is rounded."""
    real = row[:vocab_size]
    order = np.argsort(-real[::-1], kind="stable")[: reduction.count]  # ties: highest id first
    ids = vocab_size - 1 - order
    with np.errstate(over="ignore", invalid="ignore"):
        checksum = float(real.sum())
        mass = None
        if reduction.temperature is not None:
            weights = np.exp((real - real[ids[0]]) * (1.0 / reduction.temperature))
            checksum = mass = float(weights.sum(dtype=np.float64)) * (1.0 + mass_error)
    unique = np.count_nonzero(real == real[ids[0]]) == 1
    return ReducedRow(ids, real[ids], bool(unique), checksum, mass, full)
