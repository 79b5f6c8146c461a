"""The statistics of the audit: exact values, exact moments, and the right rate of alarms."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from specdec.runtime.audit.power import detectable
from specdec.runtime.audit.statistics import Fit, binomial_tail, fit_counts, gamma_tail, holm
from specdec.runtime.sampling.distribution import Distribution


def distribution(*probs: float) -> Distribution:
    return Distribution.dense(np.array(probs))


class TestGammaTail:
    @pytest.mark.parametrize("x", [1e-3, 0.5, 1.0, 2.5, 10.0, 80.0])
    def test_closed_forms(self, x: float) -> None:
        assert gamma_tail(1.0, x) == pytest.approx(math.exp(-x), rel=1e-12)
        assert gamma_tail(0.5, x) == pytest.approx(math.erfc(math.sqrt(x)), rel=1e-11)
        poisson = sum(math.exp(-x + k * math.log(x) - math.lgamma(k + 1)) for k in range(7))
        assert gamma_tail(7.0, x) == pytest.approx(poisson, rel=1e-12)

    @pytest.mark.parametrize(
        ("degrees", "x", "tail"),
        [
            (1, 3.841458820694124, 0.05),
            (10, 18.307038053275146, 0.05),
            (100, 149.44925277903886, 1e-3),
        ],
    )
    def test_tables_of_chi_square(self, degrees: int, x: float, tail: float) -> None:
        assert gamma_tail(degrees / 2, x / 2) == pytest.approx(tail, rel=1e-8)

    @pytest.mark.parametrize("shape", [0.3, 2.7, 40.2, 900.0])
    def test_the_recurrence_joins_series_and_fraction(self, shape: float) -> None:
        for x in np.linspace(0.2, 2.5, 12) * shape:
            step = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1))
            expected = gamma_tail(shape, x) + step
            assert gamma_tail(shape + 1, x) == pytest.approx(expected, rel=1e-9)

    def test_far_tails_and_zero(self) -> None:
        assert gamma_tail(3.0, 0.0) == 1.0
        assert gamma_tail(3.0, 700.0) == pytest.approx(math.exp(-700) * (1 + 700 + 245_000))


@pytest.mark.parametrize(("draws", "chance"), [(1, 0.5), (7, 0.2), (30, 0.9), (30, 1e-3)])
def test_binomial_tail_sums_the_terms(draws: int, chance: float) -> None:
    terms = [
        math.comb(draws, k) * chance**k * (1 - chance) ** (draws - k) for k in range(draws + 1)
    ]
    for successes in range(draws + 1):
        expected = sum(terms[successes:])
        assert binomial_tail(successes, draws, chance) == pytest.approx(expected, rel=1e-9)


def test_holm_steps_down_until_one_passes() -> None:
    assert holm([0.02, 0.001, 0.04, 0.3], 0.05) == [False, True, False, False]
    assert holm([0.016, 0.001, 0.024, 0.04], 0.05) == [True, True, True, True]
    assert holm([], 0.05) == []


def test_mean_and_variance_of_the_statistic_are_exact() -> None:
    probs, draws = (0.5, 0.3, 0.2), 60
    mean = second = total = 0.0
    for first, other in product(range(draws + 1), repeat=2):
        third = draws - first - other
        if third < 0:
            continue
        log_weight = math.lgamma(draws + 1) + sum(
            n * math.log(p) - math.lgamma(n + 1)
            for n, p in zip((first, other, third), probs, strict=True)
        )
        weight = math.exp(log_weight)
        fit = fit_counts(distribution(*probs), {0: first, 1: other, 2: third})
        mean += weight * fit.statistic
        second += weight * fit.statistic**2
        total += weight
    assert total == pytest.approx(1.0)
    assert fit.mean == pytest.approx(mean, rel=1e-9)
    assert fit.variance == pytest.approx(second - mean**2, rel=1e-7)


def test_rare_tokens_share_a_bin_and_excluded_ones_are_counted() -> None:
    fit = fit_counts(distribution(0.5, 0.3, 0.05, 0.05, 0.04, 0.06, 0.0), {0: 50, 1: 30, 2: 20})
    assert (fit.mean, fit.outside, fit.draws) == (2.0, 0, 100)
    assert fit.statistic == pytest.approx(0.0)
    joined = fit_counts(
        distribution(0.6, 0.37, 0.03), {0: 60, 1: 40}
    )  # three are too few for a bin
    assert joined.mean == 1.0
    assert joined.statistic == pytest.approx(0.0)
    assert fit_counts(distribution(0.5, 0.5, 0.0), {0: 48, 1: 50, 2: 2}).outside == 2
    certain = fit_counts(Distribution.one_hot(3, 7), {3: 500})
    assert (certain.mean, certain.p_value, certain.total_variation) == (0.0, 1.0, 0.0)
    assert fit_counts(distribution(0.9, 0.1), {0: 3}).mean == 0.0


def test_sparse_distributions_are_taken_by_token() -> None:
    sparse = Distribution(9, np.array([2, 5]), np.array([0.25, 0.75], dtype=np.float32))
    assert fit_counts(sparse, {2: 25, 5: 75}).statistic == pytest.approx(0.0)
    assert fit_counts(sparse, {2: 75, 5: 25}).p_value < 1e-20


def simulated(rng: np.random.Generator, biased: float = 0.0) -> Fit:
    """Counts of twelve tables whose distributions are moved by a total variation of `biased`."""
    whole = Fit()
    for rate in np.linspace(0.3, 1.2, 12):
        probs = np.exp(-rate * np.arange(30))
        probs /= probs.sum()
        moved = probs.copy()
        moved[0] -= biased
        moved[1:] *= 1.0 + biased / (1.0 - probs[0])
        counts = rng.multinomial(300, moved / moved.sum())
        whole += fit_counts(Distribution.dense(probs), {i: int(n) for i, n in enumerate(counts)})
    return whole


@pytest.mark.slow
def test_alarms_and_distances_have_their_stated_rates() -> None:
    rng = np.random.default_rng(5)
    fits = [simulated(rng) for _ in range(3000)]
    p_values = np.array([fit.p_value for fit in fits])
    for level, allowed in [(0.5, 0.03), (0.1, 0.017), (0.01, 0.006)]:
        assert abs((p_values <= level).mean() - level) < allowed
    seen = np.mean([fit.total_variation for fit in fits])
    assert seen == pytest.approx(fits[0].noise_floor, rel=0.02)


def test_a_bias_called_detectable_is_detected_nine_times_in_ten() -> None:
    """The bound is for the bias that is hardest to see; a common one is seen at least as often."""
    rng = np.random.default_rng(6)
    distance = detectable(simulated(rng), 1e-3)
    assert 0.005 < distance < 0.1
    found = [simulated(rng, distance).p_value <= 1e-3 for _ in range(400)]
    assert np.mean(found) > 0.87
    assert detectable(Fit(draws=10), 1e-3) == 1.0
