"""Medians, percentiles and intervals that assume no distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["bootstrap_interval", "median", "pooled_ratio"]

Floats = NDArray[np.float64]

_RESAMPLES = 1000


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return float(np.median(np.asarray(values, np.float64)))


def pooled_ratio(pairs: Floats) -> float:
    """Sum of the first column over the sum of the second, float64 [N, 2]."""
    return float(pairs[:, 0].sum() / pairs[:, 1].sum())


def bootstrap_interval(
    values: Floats, statistic: Callable[[Floats], float], level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a statistic; the same values give the same interval.

    Args:
        values: float64 [N] or [N, columns], N >= 1; rows are resampled with replacement.
        statistic: of such an array.
        level: coverage.
    """
    generator = np.random.default_rng(0)
    count = values.shape[0]
    drawn = generator.integers(count, size=(_RESAMPLES, count))
    found = np.array([statistic(values[rows]) for rows in drawn])
    tail = 100.0 * (1.0 - level) / 2.0
    low, high = np.percentile(found, [tail, 100.0 - tail])
    return float(low), float(high)
