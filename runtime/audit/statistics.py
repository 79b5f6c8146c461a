"""Tests of counted tokens against an exact distribution, without a statistics library.

Pearson's X^2 = sum (count - expected)^2 / expected over bins. Tokens are ranked by their exact
probability: each with an expected count of at least 10 is a bin, all rarer ones share one. Bins
follow from the distribution alone, never from the counts.

Under the distribution, over k bins of n draws, its first two moments are known exactly (Haldane,
1937):

    E X^2 = k - 1,   Var X^2 = 2 (k - 1) + (sum 1 / p_i - k^2 - 2 k + 2) / n

A sum over independent tables adds both up. Its upper tail is that of the Gamma distribution with
these moments, which is the chi-square distribution when counts are large and does not
understate the tail when they are small.

Total variation: 1/2 sum |count / n - p| is never 0, even without any fault; its mean under the
distribution, the noise floor, is 1/2 sum sqrt(2 p (1 - p) / (pi n)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdec.runtime.sampling.distribution import Distribution

__all__ = ["Fit", "binomial_tail", "fit_counts", "gamma_tail", "holm"]

_MIN_EXPECTED = 10.0
_TINY = 1e-300


@dataclass(frozen=True)
class Fit:
    """Goodness of fit of counts to a distribution; fits of independent tables add up."""

    statistic: float = 0.0
    """Pearson's X^2."""
    mean: float = 0.0
    """Its expectation under the distribution, the degrees of freedom."""
    variance: float = 0.0
    draws: int = 0
    distance: float = 0.0
    """Total variation between frequencies and distribution, times `draws`."""
    floor: float = 0.0
    """What `distance` is on average when there is no fault."""
    outside: int = 0
    """Draws of tokens to which the distribution gives no probability."""

    def __add__(self, other: Fit) -> Fit:
        return Fit(
            self.statistic + other.statistic,
            self.mean + other.mean,
            self.variance + other.variance,
            self.draws + other.draws,
            self.distance + other.distance,
            self.floor + other.floor,
            self.outside + other.outside,
        )

    @property
    def p_value(self) -> float:
        """Probability of a fit at least this bad under the distribution; 1 when nothing varies."""
        if self.mean <= 0.0:
            return 1.0
        return gamma_tail(
            self.mean * self.mean / self.variance, self.statistic * self.mean / self.variance
        )

    @property
    def total_variation(self) -> float:
        """Mean distance over draws."""
        return self.distance / self.draws if self.draws else 0.0

    @property
    def noise_floor(self) -> float:
        """Mean distance expected without a fault."""
        return self.floor / self.draws if self.draws else 0.0


def fit_counts(distribution: Distribution, counts: Mapping[int, int]) -> Fit:
    """Compare counted tokens with the distribution they should follow.

    Args:
        distribution: the exact distribution.
        counts: draws by token id.
    """
    draws = sum(counts.values())
    outside = sum(n for token, n in counts.items() if distribution.prob(token) <= 0.0)
    ids = distribution.support()
    probs = distribution.probs.astype(np.float64) / distribution.total()
    order = np.argsort(-probs, kind="stable")
    single = order[probs[order] * draws >= _MIN_EXPECTED]
    seen = [counts.get(int(ids[i]), 0) for i in single]
    expected = [float(probs[i]) * draws for i in single]
    rare = max(draws - sum(expected), 0.0)
    if rare >= _MIN_EXPECTED or not expected:
        expected.append(rare)
        seen.append(draws - sum(seen))
    else:  # too few to stand alone: they join the rarest of the others
        expected[-1] += rare
        seen[-1] = draws - sum(seen[:-1])
    return _fit(np.array(seen, float), np.array(expected), draws, outside)


def _fit(seen: np.ndarray, expected: np.ndarray, draws: int, outside: int) -> Fit:
    bins = len(expected)
    if bins < 2:
        return Fit(draws=draws, outside=outside)
    p = expected / draws
    spread = 2.0 * (bins - 1) + ((1.0 / p).sum() - bins**2 - 2 * bins + 2) / draws
    return Fit(
        statistic=float(((seen - expected) ** 2 / expected).sum()),
        mean=bins - 1.0,
        variance=float(spread),
        draws=draws,
        distance=float(0.5 * np.abs(seen - expected).sum()),
        floor=float(0.5 * draws * np.sqrt(2.0 * p * (1.0 - p) / (math.pi * draws)).sum()),
        outside=outside,
    )


def binomial_tail(successes: int, draws: int, chance: float) -> float:
    """P(at least this many successes in so many draws), by summing the exact terms.

    Args:
        chance: 0 < chance < 1.
    """
    if successes <= 0:
        return 1.0
    total, log_odds = 0.0, math.log(chance) - math.log1p(-chance)
    log_term = (
        math.lgamma(draws + 1) - math.lgamma(successes + 1) - math.lgamma(draws - successes + 1)
    )
    log_term += successes * math.log(chance) + (draws - successes) * math.log1p(-chance)
    for count in range(successes, draws + 1):
        term = math.exp(log_term)
        total += term
        if count > draws * chance and term < 1e-17 * total:
            break
        log_term += math.log(draws - count or 1) - math.log(count + 1) + log_odds
    return min(total, 1.0)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which of several tests fail when any false alarm at all has at most chance `level`.

    Holm's step-down: the smallest of m values is held against level / m, the next against
    level / (m - 1), and so on until one passes.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    failed = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(order) - rank):
            break
        failed[index] = True
    return failed


def gamma_tail(shape: float, x: float) -> float:
    """Regularised upper incomplete gamma function Q(shape, x) = P(Gamma(shape, 1) > x).

    A power series for P = 1 - Q below x = shape + 1, Lentz's continued fraction for Q above
    (Abramowitz and Stegun 6.5.29, 6.5.31). `chi2.sf(x, df)` is Q(df / 2, x / 2).

    Args:
        shape: > 0.
        x: >= 0.
    """
    if x <= 0.0:
        return 1.0
    log_front = shape * math.log(x) - x - math.lgamma(shape)
    if x < shape + 1.0:
        return 1.0 - math.exp(log_front) * _series(shape, x)
    return math.exp(log_front) * _fraction(shape, x)


def _series(shape: float, x: float) -> float:
    """sum_n x^n / (shape (shape + 1) ... (shape + n))."""
    term = total = 1.0 / shape
    n = shape
    while term > 1e-17 * total:
        n += 1.0
        term *= x / n
        total += term
    return total


def _fraction(shape: float, x: float) -> float:
    """1 / (x + 1 - shape - 1 (1 - shape) / (x + 3 - shape - ...))."""
    b = x + 1.0 - shape
    c, d = 1.0 / _TINY, 1.0 / b
    value = d
    for n in range(1, 100_000):
        a = -n * (n - shape)
        b += 2.0
        d = 1.0 / (a * d + b or _TINY)
        c = b + a / c or _TINY
        value *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return value
