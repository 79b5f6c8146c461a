"""What drafting and verifying cost, in seconds, as known so far.

T(M) is the cost of a verify pass of M rows and d that of one drafted token, each with the
host work that belongs to it. What was measured in this process counts by its running median,
which ignores the odd stall. What was not follows the shape of the starting figures, on the
scale of what was: T(M) = scale * shape(M), scale = median of measured T / shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

from specdec.runtime.drafters import LOOKUP, MODEL

__all__ = ["DEFAULT_COSTS", "CostTable"]

_WINDOW = 9


class CostTable:
    """Draft and verify costs by number of rows.

    The shape is interpolated between its figures and goes on with the last slope above the
    largest.
    """

    def __init__(self, draft_seconds: float, verify_seconds: Mapping[int, float]) -> None:
        """Start from known figures, in any one unit of time until something is measured.

        Args:
            draft_seconds: d.
            verify_seconds: T by number of rows, at least for one row.
        """
        assert 1 in verify_seconds, "the cost of a plain step is needed to start from"
        self._draft_shape = draft_seconds
        self._shape = dict(sorted(verify_seconds.items()))
        self._scale = 1.0
        self._draft_samples: dict[str, deque[float]] = {}
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}

    @classmethod
    def from_mapping(cls, costs: Mapping[str, Any]) -> CostTable | None:
        """Read `{"draft_seconds": s, "verify_seconds": {"1": s, "5": s, ...}}`.

        Returns:
            None when the figures are absent or are not positive numbers.
        """
        try:
            draft = float(costs["draft_seconds"])
            verify = {int(m): float(s) for m, s in dict(costs["verify_seconds"]).items()}
        except (KeyError, TypeError, ValueError):
            return None
        if 1 not in verify or not min(draft, *verify.keys(), *verify.values()) > 0:
            return None
        return cls(draft, verify)

    def fresh(self) -> CostTable:
        """A table with the same starting figures and nothing measured."""
        return CostTable(self._draft_shape, self._shape)

    def measured(self, rows: int) -> bool:
        """True when T(rows) was measured in this process."""
        return rows in self._medians

    def draft(self, source: str = MODEL) -> float:
        """d, seconds per token drafted by a source; a look-up costs nothing until measured."""
        samples = self._draft_samples.get(source)
        if samples:
            return median(samples)
        return 0.0 if source.startswith(LOOKUP) else self._scale * self._draft_shape

    def verify(self, rows: int) -> float:
        """T(rows), seconds."""
        known = self._medians.get(rows)
        return self._scale * self._shape_at(rows) if known is None else known

    def measure_draft(self, seconds_per_token: float, source: str = MODEL) -> None:
        """Add a measurement of d."""
        samples = self._draft_samples.setdefault(source, deque(maxlen=_WINDOW))
        samples.append(seconds_per_token)

    def measure_verify(self, rows: int, seconds: float) -> None:
        """Add a measurement of T(rows)."""
        samples = self._samples.setdefault(rows, deque(maxlen=_WINDOW))
        samples.append(seconds)
        self._medians[rows] = median(samples)
        self._scale = median(t / self._shape_at(m) for m, t in self._medians.items())

    def _shape_at(self, rows: int) -> float:
        if rows in self._shape:
            return self._shape[rows]
        known = sorted(self._shape)
        if len(known) == 1:
            return self._shape[known[0]]
        right = next((i for i, m in enumerate(known) if m > rows), len(known) - 1)
        low, high = known[right - 1], known[right]
        slope = (self._shape[high] - self._shape[low]) / (high - low)
        return self._shape[low] + max(slope, 0.0) * (rows - low)


DEFAULT_COSTS = CostTable(0.25, {1: 1.0, 5: 1.2, 9: 1.5, 33: 3.0})
"""Typical shape in units of T(1), used until something better is known."""
