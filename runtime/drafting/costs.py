"""Estimate the seconds of drafting and verifying from starting figures and measurements.

T(M) is the cost of a verify pass of M rows and d that of one token drafted by the model, each
including its host work; both grow with n, the tokens in the cache. A look-up is free. Starting
figures give the shape, and measurements of this process correct it:

    T(1) = shape (a + b n),  T(M) = shape (c + e M + n (f + g M)),  d = shape (h + i n)

A Kalman filter estimates a .. i from every round, so widths and context lengths that were not
measured follow from those that were, old measurements lose weight, and outliers have little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEFAULT_COSTS", "CostTable", "Costs", "Vector"]

Vector = NDArray[np.float64]

_START = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
"""a, b, c, e, f, g, h, i."""
_SPREAD = np.array([0.2, 0.3, 0.2, 0.1, 0.3, 0.1, 0.2, 0.3])
"""How far each may be from its start, apart from the unit of time, which all share."""
_UNIT_SPREAD = 1.0
_NOISE = 0.1
"""Scatter of a measurement, relative."""
_STALL = 1.5
"""Standard deviations beyond which a measurement counts no more than that."""
_FORGET = 1e-4
"""Share of the first uncertainty that comes back with every measurement."""
_FIRST_RATIOS = 3
"""Measurements that only set the unit of time."""
_ROWS_UNIT, _TOKENS_UNIT = 8.0, 1024.0
_LEAST_FACTOR = 0.05


class Costs(Protocol):
    """What the adaptive draft length needs to know, and tells, of costs."""

    def draft(self, context: int) -> float:
        """d, seconds per token drafted by the model after `context` tokens."""
        ...

    def verify(self, most_rows: int, context: int) -> Vector:
        """T(1) .. T(most_rows) after `context` tokens, float64 [most_rows] seconds."""
        ...

    def doubt(self, context: int) -> float:
        """Standard deviation of T(1) over T(1)."""
        ...

    def measure_draft(self, seconds_per_token: float, context: int) -> None:
        """Add a measurement of d."""
        ...

    def measure_verify(self, rows: int, seconds: float, context: int) -> None:
        """Add a measurement of T(rows)."""
        ...


class CostTable:
    """Draft and verify costs by number of rows and length of context.

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
        self._unit: float | None = None
        self._first_ratios = 0
        self._factors = _START.copy()
        self._first = np.diag(_SPREAD**2) + _UNIT_SPREAD**2 * np.outer(_START, _START)
        self._doubt = self._first.copy()

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
        figures = (draft, *verify.keys(), *verify.values())
        if 1 not in verify or not all(math.isfinite(x) and x > 0 for x in figures):
            return None
        return cls(draft, verify)

    def fresh(self) -> CostTable:
        """A table with the same starting figures and nothing measured."""
        return CostTable(self._draft_shape, self._shape)

    def draft(self, context: int) -> float:
        """d, seconds per token drafted by the model after `context` tokens."""
        factor = self._factor(_draft_features(context / _TOKENS_UNIT))
        return self._draft_shape * factor * (self._unit or 1.0)

    def verify(self, most_rows: int, context: int) -> Vector:
        """T(1) .. T(most_rows) after `context` tokens, float64 [most_rows] seconds."""
        grown, rows = context / _TOKENS_UNIT, np.arange(1.0, most_rows + 1.0)
        a, b, c, e, f, g = self._factors[:6]
        factors = c + f * grown + (e + g * grown) * (rows - 2.0) / _ROWS_UNIT
        factors[0] = a + b * grown
        seconds: Vector = self._shape_at(rows) * np.maximum(factors, _LEAST_FACTOR)
        return seconds * (self._unit or 1.0)

    def doubt(self, context: int) -> float:
        """Standard deviation of T(1) over T(1)."""
        features = _verify_features(1.0, context / _TOKENS_UNIT)
        return math.sqrt(features @ self._doubt @ features) / self._factor(features)

    def measure_draft(self, seconds_per_token: float, context: int) -> None:
        """Add a measurement of d."""
        features = _draft_features(context / _TOKENS_UNIT)
        self._learn(features, seconds_per_token / self._draft_shape)

    def measure_verify(self, rows: int, seconds: float, context: int) -> None:
        """Add a measurement of T(rows)."""
        shape = float(self._shape_at(np.array([float(rows)]))[0])
        self._learn(_verify_features(float(rows), context / _TOKENS_UNIT), seconds / shape)

    def _learn(self, features: Vector, measured: float) -> None:
        """One step of the filter; the first measurements set the unit of time alone.

        The lowest of them counts: the first of a process pay for what is loaded or captured then.
        """
        if self._first_ratios < _FIRST_RATIOS:
            self._first_ratios += 1
            known = math.inf if self._unit is None else self._unit
            self._unit = max(min(measured, known), 1e-12)
            return
        assert self._unit is not None
        column = self._doubt @ features
        predicted = float(features @ self._factors)
        variance = float(features @ column) + (_NOISE * max(predicted, _LEAST_FACTOR)) ** 2
        bound = _STALL * variance**0.5
        error = min(max(measured / self._unit - predicted, -bound), bound)
        self._factors = self._factors + column * (error / variance)
        self._doubt = self._doubt - np.outer(column, column) / variance
        self._doubt = self._doubt + _FORGET * (self._first - self._doubt)

    def _factor(self, features: Vector) -> float:
        return max(float(features @ self._factors), _LEAST_FACTOR)

    def _shape_at(self, rows: Vector) -> Vector:
        known, seconds = list(self._shape), list(self._shape.values())
        slope = 0.0
        if len(known) > 1:
            slope = max((seconds[-1] - seconds[-2]) / (known[-1] - known[-2]), 0.0)
        shape: Vector = np.interp(rows, known, seconds)
        return shape + slope * np.maximum(rows - known[-1], 0.0)


def _verify_features(rows: float, grown: float) -> Vector:
    """What multiplies a .. i in T(rows) / shape."""
    if rows == 1.0:
        return np.array([1.0, grown, 0, 0, 0, 0, 0, 0])
    more = (rows - 2.0) / _ROWS_UNIT
    return np.array([0, 0, 1.0, more, grown, grown * more, 0, 0])


def _draft_features(grown: float) -> Vector:
    return np.array([0, 0, 0, 0, 0, 0, 1.0, grown])


DEFAULT_COSTS = CostTable(0.25, {1: 1.0, 5: 1.2, 9: 1.5, 33: 3.0})
"""Typical shape in units of T(1), used until something better is known."""
