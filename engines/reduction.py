"""Logits reduced where they are: the few figures of a row that a choice needs.

A row of logits has 50 to 250 thousand columns. A greedy choice needs one of them, top-k sampling
k. An engine that can work that out on its own device returns `ReducedRow`s instead, and keeps the
full rows for the cases that the few figures do not settle.

Nothing here decides a distribution: that is up to the caller, who must get from a reduced row
the very result that the full row would give, and asks for the full row otherwise.
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
    """What is wanted of each row."""

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
    """No other token has the best logit. A device breaks ties by rules of its own."""
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
        """Whether it pays here to ask for this reduction rather than for full rows."""
        ...

    def forward_reduced(
        self, token_ids: NDArray[np.int64], num_logits: int, reduction: Reduction
    ) -> list[ReducedRow]:
        """As `Engine.forward`, with its errors, but with `num_logits` reduced rows."""
        ...
