"""Compute the smallest bias that a test would have detected, given beside every verdict.

A bias of total variation d at every table moves X^2 by at least 4 d^2 per draw (because
sum (q - p)^2 / p >= (sum |q - p|)^2), and leaves it close to normal with variance
Var + 4 * 4 d^2 draws. The smallest d that passes the critical value nine times in ten follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from specdec.runtime.audit.statistics import Fit, gamma_tail

__all__ = ["detectable"]

_NINE_IN_TEN = 1.2815515655446004  # of the standard normal distribution


def detectable(fit: Fit, level: float) -> float:
    """Total variation that a test at `level` on so many draws detects nine times in ten.

    Returns:
        1.0 when nothing varies, that is when the options leave one token to choose.
    """
    if fit.mean <= 0.0:
        return 1.0
    shape, scale = fit.mean**2 / fit.variance, fit.variance / fit.mean
    critical = _first_true(lambda x: gamma_tail(shape, x / scale) <= level, fit.mean)

    def shows(shift: float) -> bool:
        low = fit.mean + shift - _NINE_IN_TEN * math.sqrt(fit.variance + 4.0 * shift)
        return low >= critical

    return min(0.5 * math.sqrt(_first_true(shows, 1.0) / fit.draws), 1.0)


def _first_true(test: Callable[[float], bool], start: float) -> float:
    """Bisect for the point from which on a test, false at 0, is true."""
    low, high = 0.0, start
    while not test(high):
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if test(middle) else (middle, high)
    return high
