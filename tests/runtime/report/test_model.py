"""The speed model against hand-made figures and a simulation of rounds."""

from __future__ import annotations

import random

import pytest

from specdec.runtime.report.model import (
    SpeedModel,
    acceptance_rates,
    break_even_acceptance,
    expected_tokens,
)


def flat_model(draft: float = 0.25, rise: float = 0.1, largest: int = 8) -> SpeedModel:
    """T(M) = 1 + rise * (M - 1), no host time."""
    costs = tuple(k * draft + 1.0 + rise * k for k in range(largest + 1))
    return SpeedModel(costs, draft)


def test_expected_tokens() -> None:
    assert expected_tokens([]) == [1.0]
    assert expected_tokens([0.5, 0.5]) == [1.0, 1.5, 1.75]
    alpha, k = 0.8, 6
    closed = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens([alpha] * k)[-1] == pytest.approx(closed, rel=1e-12)


def test_rates_are_counts_drawn_towards_the_common_rate() -> None:
    rates = acceptance_rates([(100, 90), (80, 80)], 3)
    common = 170 / 180
    assert rates == pytest.approx([(90 + 2 * common) / 102, (80 + 2 * common) / 82, common])
    assert acceptance_rates([], 2) == [0.0, 0.0]


def test_speedup_and_best() -> None:
    model = flat_model()
    assert model.largest == 8
    assert model.speedup([1.0] * 8, 4) == pytest.approx(5 / 2.4)
    assert model.best([1.0] * 8) == 8
    assert model.best([0.0] * 8) == 1
    flat = SpeedModel((1.0, 1.0, 1.5, 2.01, 2.5), 0.4)
    assert [flat.speedup([1.0] * 4, k) for k in (1, 2, 3, 4)] == pytest.approx(
        [2, 2, 1.99, 2], abs=0.01
    )
    assert flat.best([1.0] * 4) == 1
    assert model.speedup([0.0] * 8, 1) == pytest.approx(1 / 1.35)


def test_a_text_takes_what_its_rounds_take() -> None:
    """R(N) by recursion equals the mean of simulated texts, and exact cases by hand."""
    model = flat_model()
    assert model.text_seconds([0.5] * 8, 0, 7) == pytest.approx(7.0)
    assert model.text_seconds([1.0] * 8, 4, 5) == pytest.approx(2.4)
    # Six tokens: a round of five, then one that must not draft.
    assert model.text_seconds([1.0] * 8, 4, 6) == pytest.approx(2.4 + 1.0)
    draws = random.Random(0)
    total, texts = 0.0, 20_000
    for _ in range(texts):
        left = 12
        while left:
            k = min(3, left - 1)
            total += model.round_seconds[k]
            accepted = 0
            while accepted < k and draws.random() < 0.7:
                accepted += 1
            left -= accepted + 1
    assert model.text_seconds([0.7] * 8, 3, 12) == pytest.approx(total / texts, rel=0.01)


def test_long_texts_approach_the_formula() -> None:
    model, rates = flat_model(), [0.8, 0.7, 0.9, 0.6, 0.8, 0.8, 0.8, 0.8]
    length = 400
    text = length * model.round_seconds[0] / model.text_seconds(rates, 5, length)
    assert text == pytest.approx(model.speedup(rates, 5), rel=0.01)


def test_break_even_is_where_the_speedup_is_one() -> None:
    model = flat_model()
    alpha = break_even_acceptance(model, 4)
    assert alpha is not None
    assert model.speedup([alpha] * 4, 4) == pytest.approx(1.0, abs=1e-9)
    assert break_even_acceptance(flat_model(draft=2.0), 4) is None
