"""Bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest

from specdec.runtime.report.measuring.intervals import bootstrap_interval, median, pooled_ratio


def test_the_same_values_give_the_same_interval() -> None:
    values = np.random.default_rng(3).normal(10.0, 1.0, 40)
    first = bootstrap_interval(values, lambda a: float(np.median(a)))
    assert first == bootstrap_interval(values, lambda a: float(np.median(a)))
    assert first[0] < median(values) < first[1]


def test_one_value_has_no_width() -> None:
    assert bootstrap_interval(np.array([2.5]), lambda a: float(np.median(a))) == (2.5, 2.5)


def test_pairs_are_resampled_together() -> None:
    """Each pair has the ratio 2, whatever its size: no resample can change it."""
    pairs = np.array([[2.0, 1.0], [20.0, 10.0], [0.2, 0.1]])
    assert bootstrap_interval(pairs, pooled_ratio) == pytest.approx((2.0, 2.0))


def test_coverage_of_a_mean() -> None:
    """About 95 % of intervals hold the true value; 200 draws of 60 exponential values."""
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        low, high = bootstrap_interval(generator.exponential(1.0, 60), lambda a: float(a.mean()))
        inside += low <= 1.0 <= high
    # 95 % nominal; the percentile bootstrap of a skewed mean covers a little less.
    assert 0.88 <= inside / 200 <= 0.99
