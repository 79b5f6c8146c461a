"""Reduce rows of logits on the engine's device to the few values that choosing a token needs.

A row of logits has 50 to 250 thousand columns. A greedy choice needs one of them, top-k sampling
k. An engine that can compute those on its own device returns `ReducedRow`s instead, and keeps the
full rows for the cases in which the reduced values do not suffice.

The caller forms the distribution. It must get from a reduced row exactly the result that the full
row would give, and reads the full row otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReducedRow", "ReducingEngine", "Reduction"]


@dataclass(frozen=True)
class Reduction:
    """Which values of each row to compute."""

    count: int
    """How many of the best tokens, 1 .. vocab_size; 1 asks for the best alone."""
    temperature: float | None = None
    """Not None asks for the mass of the whole row at this temperature (above 0) as well."""


@dataclass(frozen=True)
class ReducedRow:
    """The best tokens of one row over the real vocabulary. Valid until the engine's next pass."""

    ids: NDArray[np.int64]
    """int64 [count], best first; of equal logits in any order."""
    values: NDArray[np.float32]
    """float32 [count], their logits, descending."""
    is_unique: bool
    """Whether no other token has the best logit (devices break ties differently)."""
    checksum: float
    """NaN or +inf when the row holds one: its sum, or its mass."""
    mass: float | None
    """sum_x exp((logit_x - values[0]) / temperature), summed in float64; None when not asked."""
    full: Callable[[], NDArray[np.floating[Any]]]
    """The row itself, float32 [logits_width], padding included."""

    @property
    def is_sound(self) -> bool:
        """Whether the best logit is finite and no logit is NaN or +inf."""
        return bool(np.isfinite(self.values[0])) and self.checksum < math.inf


@runtime_checkable
class ReducingEngine(Protocol):
    """An `Engine` that can reduce its logits."""

    def reduces(self, reduction: Reduction) -> bool:
        """Whether this reduction is faster on this device than reading full rows."""
        ...

    def forward_reduced(
        self, token_ids: NDArray[np.int64], num_logits: int, reduction: Reduction
    ) -> list[ReducedRow]:
        """As `Engine.forward`, with its errors, but with `num_logits` reduced rows."""
        ...
