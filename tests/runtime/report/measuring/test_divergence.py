"""Comparing distributions, with tables whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from specdec.engines import NumericalError
from specdec.runtime.report.measuring.divergence import (
    AgreementTally,
    draft_rows,
    log_softmax,
    score_text,
)
from tests.support.table_engine import TableEngine, nearby_table, random_table

TEXT = [1, 4, 0, 2, 2, 3, 1, 0, 4]


def test_figures_of_two_known_distributions() -> None:
    reference = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]))
    other = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]))
    tally = AgreementTally()
    tally.add(other + 7.0, reference - 3.0, [0, 2])
    found = tally.agreement()
    assert found is not None
    kl = 0.5 * np.log(2) + 0.3 * np.log(0.6) + 0.2 * np.log(0.8)
    assert found.tokens == 2
    assert found.kl_divergence == pytest.approx(kl / 2)
    assert found.argmax_agreement == 0.5
    assert found.overlap == pytest.approx((0.25 + 0.3 + 0.2 + 1.0) / 2)
    assert found.perplexity == pytest.approx(1 / 0.25)
    assert found.reference_perplexity == pytest.approx(1 / 0.2)
    assert AgreementTally().agreement() is None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_must_be_finite(bad: float) -> None:
    with pytest.raises(NumericalError):
        log_softmax(np.array([[0.0, bad]]))


@pytest.mark.parametrize("rows", [1, 2, 4, 100, None])
def test_a_text_scores_the_same_however_it_is_fed(rows: int | None) -> None:
    engine = TableEngine(random_table(0, 5, order=2), padding=3, prefill_chunk=4)
    expected = [engine.logits_after(TEXT[: i + 1]) for i in range(len(TEXT))]
    np.testing.assert_allclose(score_text(engine, TEXT, rows), expected, rtol=1e-6)
    assert engine.cached == TEXT


@pytest.mark.parametrize("shares", [True, False])
def test_draft_rows_stand_on_the_cache_the_draft_uses(shares: bool) -> None:
    table = random_table(0, 5, order=2)
    target = TableEngine(table, padding=1)
    draft = TableEngine(
        nearby_table(table, 1),
        name="draft",
        share_cache_with=target if shares else None,
    )
    score_text(target, TEXT)
    rows = {i: row.copy() for i, row in draft_rows(target, draft, shares, TEXT)}
    assert sorted(rows) == list(range(len(TEXT)))
    for i, row in rows.items():
        np.testing.assert_array_equal(row, draft.logits_after(TEXT[: i + 1]))
    assert draft.length == 0
    target_passes = [call for call in target.calls if call[1] != tuple(TEXT)]
    assert target_passes == [], "one pass of the target serves every position"
