"""What is timed, and that caches come out as they went in."""

from __future__ import annotations

import pytest

from specdec.runtime.report.contents import ContextCosts
from specdec.runtime.report.measuring.curves import CurvePlan, costs_at, measure_curves, plan_curves
from tests.support.table_engine import TableEngine, random_table


def test_the_plan_covers_17_rows_and_fits_the_context() -> None:
    plan = plan_curves("short", 4096, 0.02)
    assert plan.widths == tuple(range(1, 18))
    assert plan.contexts == (64, 256)
    assert plan_curves("full", 2048, 0.02).contexts == (64, 256, 1024)
    slow = plan_curves("short", 4096, 1.0)
    assert slow.contexts == (64,)
    assert len(slow.widths) < 10
    for length in range(16, 100):
        small = plan_curves("short", length, 0.02)
        assert 1 in small.widths
        assert max(small.contexts) + max(small.widths) <= length


@pytest.mark.parametrize("shares", [True, False])
def test_every_width_is_timed_after_the_context(shares: bool) -> None:
    target = TableEngine(random_table(0, 5))
    draft = TableEngine(
        random_table(1, 5), name="draft", share_cache_with=target if shares else None
    )
    plan = CurvePlan(contexts=(3, 10), widths=(1, 2, 5), repeats=2)
    measured = measure_curves(target, draft, shares, plan, [1, 2, 3])
    assert [costs.context for costs in measured] == [3, 10]
    for costs in measured:
        assert sorted(costs.verify_seconds) == [1, 2, 5]
        assert all(seconds > 0.0 for seconds in costs.verify_seconds.values())
        assert costs.draft_seconds is not None
        assert costs.draft_seconds > 0.0
    timed = [call for call in target.calls if call[2]]
    assert {(length, len(ids)) for length, ids, _ in timed} == {
        (context, rows) for context in (3, 10) for rows in (1, 2, 5)
    }
    assert all(length in (3, 10) for length, _, num_logits in draft.calls if num_logits)
    assert target.length == draft.length == 0


def test_without_a_draft_there_is_no_draft_step() -> None:
    plan = CurvePlan(contexts=(2,), widths=(1,), repeats=1)
    (costs,) = measure_curves(TableEngine(random_table(0, 5)), None, False, plan, [1])
    assert costs.draft_seconds is None


def test_costs_between_two_contexts() -> None:
    known = [ContextCosts(100, 1.0, {1: 4.0, 2: 6.0}), ContextCosts(300, 3.0, {1: 8.0, 2: 6.0})]
    middle = costs_at(known, 150)
    assert middle.draft_seconds == pytest.approx(1.5)
    assert middle.verify_seconds == pytest.approx({1: 5.0, 2: 6.0})
    assert costs_at(known, 5000).verify_seconds == {1: 8.0, 2: 6.0}
    assert costs_at([ContextCosts(100, None, {1: 4.0})], 7).draft_seconds is None
