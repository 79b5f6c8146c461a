"""The adaptive policy on synthetic costs: the best K, plain decoding, probes, frozen costs."""

from __future__ import annotations

import pytest

from specdec.runtime.drafting.acceptance import AcceptanceTable, lookup_acceptance
from specdec.runtime.drafting.costs import DEFAULT_COSTS, CostTable
from specdec.runtime.drafting.draft_length import (
    PLAIN,
    AdaptiveLength,
    Choice,
    DraftLength,
    FixedLength,
    RoundOutcome,
    Savings,
)
from specdec.runtime.drafting.drafter import MODEL, Offer


class World:
    """Rounds with a fixed acceptance rate and fixed costs; accepted counts are rounded means."""

    def __init__(self, acceptance: float, draft: float, marginal: float) -> None:
        self.acceptance, self.draft, self.marginal = acceptance, draft, marginal
        self._credit: dict[int, float] = {}

    def verify(self, rows: int) -> float:
        return 1.0 + self.marginal * (rows - 1)

    def play(self, policy: AdaptiveLength, rounds: int, limit: int = 32) -> list[int]:
        """The K of each round."""
        chosen = []
        for _ in range(rounds):
            k = length(policy, limit)
            accepted = 0
            while accepted < k and self._lucky(accepted):
                accepted += 1
            evaluated = min(accepted + 1, k)
            policy.observe(RoundOutcome(k, evaluated, accepted, k * self.draft, self.verify(k + 1)))
            chosen.append(k)
        return chosen

    def _lucky(self, position: int) -> bool:
        """Deterministic: accepts the right fraction of the tries at each position."""
        credit = self._credit.get(position, 0.5) + self.acceptance
        self._credit[position] = credit % 1.0
        return credit >= 1.0

    def best(self, limit: int) -> int:
        def rate(k: int) -> float:
            expected = sum(self.acceptance**i for i in range(k + 1))
            return expected / (k * self.draft + self.verify(k + 1))

        return max(range(limit + 1), key=rate)


def length(policy: DraftLength, limit: int) -> int:
    """K when only the model offers."""
    return policy.choose([Offer(MODEL, limit)]).num_draft_tokens


def most_common(values: list[int]) -> int:
    return max(set(values), key=values.count)


@pytest.mark.parametrize(
    ("acceptance", "draft", "marginal"),
    [(0.95, 0.1, 0.02), (0.8, 0.2, 0.05), (0.6, 0.1, 0.05), (0.9, 0.4, 0.03)],
)
def test_it_finds_the_best_length(acceptance: float, draft: float, marginal: float) -> None:
    world = World(acceptance, draft, marginal)
    policy = AdaptiveLength(DEFAULT_COSTS.fresh())
    late = world.play(policy, 400)[200:]
    assert abs(most_common(late) - world.best(16)) <= 1
    assert policy.fallback is None


def test_a_losing_draft_degrades_to_plain_with_few_probes() -> None:
    world = World(acceptance=0.3, draft=0.9, marginal=0.1)
    assert world.best(16) == 0
    policy = AdaptiveLength(DEFAULT_COSTS.fresh())
    chosen = world.play(policy, 600)
    assert chosen[:8].count(0) <= 2
    late = chosen[100:]
    assert 0 < sum(k > 0 for k in late) < 0.1 * len(late)
    assert policy.fallback is not None
    assert "times the plain speed" in policy.fallback


def test_it_returns_when_the_draft_becomes_good() -> None:
    policy = AdaptiveLength(DEFAULT_COSTS.fresh())
    World(acceptance=0.2, draft=0.9, marginal=0.1).play(policy, 100)
    assert policy.fallback is not None
    chosen = World(acceptance=0.97, draft=0.1, marginal=0.02).play(policy, 400)
    assert policy.fallback is None
    assert most_common(chosen[-50:]) >= 4


def test_a_plain_step_is_timed_only_where_its_cost_could_change_the_choice() -> None:
    sure, close = World(0.95, 0.05, 0.01), World(0.5, 0.2, 0.1)
    assert 0 not in sure.play(AdaptiveLength(DEFAULT_COSTS.fresh()), 200)
    assert close.best(16) == 1
    assert 0 < close.play(AdaptiveLength(DEFAULT_COSTS.fresh()), 200).count(0) < 20


def test_limits_are_respected() -> None:
    world = World(acceptance=0.99, draft=0.01, marginal=0.0)
    policy = AdaptiveLength(DEFAULT_COSTS.fresh(), max_draft_tokens=6)
    assert max(world.play(policy, 100)) == 6
    assert max(world.play(policy, 100, limit=2)) == 2
    assert length(policy, 0) == 0
    assert policy.choose([]) == FixedLength(4).choose([]) == PLAIN
    assert [length(FixedLength(4), limit) for limit in (9, 4, 1)] == [4, 4, 1]
    assert FixedLength(4).fallback is None


def test_frozen_costs_ignore_the_clock() -> None:
    fast, slow = World(0.7, 0.01, 0.0), World(0.7, 5.0, 1.0)
    choices = [
        world.play(AdaptiveLength(DEFAULT_COSTS.fresh(), use_clock=False), 100)
        for world in (fast, slow)
    ]
    assert choices[0] == choices[1]


def test_acceptance_before_anything_is_observed() -> None:
    # Level 1 after 0.4 expected rejections; each token on the way adds 0.15 that did not come.
    assert AcceptanceTable().expected_tokens(2) == pytest.approx(
        [1.0, 1.85, 1.85 + 0.85 * (1 - 0.15 * 0.4 / 0.55)]
    )
    assert lookup_acceptance().expected_tokens(1, 2) == pytest.approx([1.0, 1.5])
    assert lookup_acceptance().expected_tokens(1, 8) == pytest.approx([1.0, 1.767], abs=0.001)


def test_acceptance_is_estimated_by_place() -> None:
    table = AcceptanceTable()
    for _ in range(300):
        table.observe(2, 1)
    one, two, three = table.expected_tokens(2)
    assert two - one > 0.85
    assert (three - two) / (two - one) < 0.25
    table.clear()
    assert table.expected_tokens(2) == AcceptanceTable().expected_tokens(2)


def test_what_is_seen_at_one_place_moves_the_others() -> None:
    table = lookup_acceptance()
    for _ in range(20):
        table.observe(1, 1, first=3)
    assert table.expected_tokens(1, 8)[1] > lookup_acceptance().expected_tokens(1, 8)[1] + 0.1


def test_costs_before_anything_is_measured() -> None:
    table = CostTable(0.5, {1: 1.0, 5: 2.0})
    assert table.verify(9, 0).tolist() == [1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3]
    assert table.verify(9, 4000).tolist() == table.verify(9, 0).tolist()
    assert CostTable(0.5, {1: 2.0}).verify(7, 0)[6] == 2.0
    assert CostTable(0.5, {1: 2.0, 5: 1.5}).verify(9, 0)[8] == 1.5  # a fall is noise
    assert table.draft(0) == 0.5


def test_one_measurement_sets_the_unit_of_time() -> None:
    table = CostTable(0.5, {1: 1.0, 5: 2.0})
    table.measure_verify(5, 20.0, 0)
    assert (table.verify(1, 0)[0], table.draft(0)) == (10.0, 5.0)
    assert table.fresh().verify(1, 0)[0] == 1.0


def test_costs_are_learned_at_the_context_and_the_widths_that_were_tried() -> None:
    def verify(rows: int, context: int) -> float:
        return (20.0 if rows == 1 else 20.0 + rows) * (1 + context / 4000)

    def draft(context: int) -> float:
        return 8.0 + context / 400

    table = DEFAULT_COSTS.fresh()
    for context in (100, 2000, 600):
        for rows in (5, 9, 1, 6, 8, 1) * 6:
            table.measure_draft(draft(context), context)
            table.measure_verify(rows, verify(rows, context), context)
    for context in (100, 600, 1200, 2000):
        assert table.draft(context) == pytest.approx(draft(context), rel=0.05)
        for rows in (1, 4, 7, 12):
            learned = table.verify(rows, context)[-1]
            assert learned == pytest.approx(verify(rows, context), rel=0.1)


def test_a_stall_moves_little_and_measuring_takes_doubt_away() -> None:
    table = CostTable(0.5, {1: 1.0, 5: 2.0})
    for _ in range(20):
        table.measure_verify(1, 1.0, 100)
    doubt = table.doubt(100)
    assert doubt < 0.05 < CostTable(0.5, {1: 1.0}).doubt(100)
    table.measure_verify(1, 50.0, 100)
    assert table.verify(1, 100)[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    "costs",
    [{}, {"draft_seconds": 1}, {"draft_seconds": "x", "verify_seconds": {"1": 1}},
     {"draft_seconds": 1, "verify_seconds": {"2": 1}}, {"draft_seconds": 1, "verify_seconds": 3},
     {"draft_seconds": -1, "verify_seconds": {"1": 1}}],
)  # fmt: skip
def test_unusable_cost_figures_are_not_used(costs: dict) -> None:
    assert CostTable.from_mapping(costs) is None


def test_cost_figures() -> None:
    table = CostTable.from_mapping({"draft_seconds": 0.1, "verify_seconds": {"1": 1, "5": 1.5}})
    assert table is not None
    assert table.verify(3, 0)[2] == 1.25


def play_two(policy: AdaptiveLength, look_up: float, model: float, rounds: int) -> list[Choice]:
    """A free look-up and a model at d = 0.3 offer in every round; returns the choices."""
    worlds = {"lookup:4": World(look_up, 0.0, 0.03), MODEL: World(model, 0.3, 0.03)}
    chosen = []
    for _ in range(rounds):
        choice = policy.choose([Offer("lookup:4", 32), Offer(MODEL, 32)])
        world, k = worlds.get(choice.source, worlds[MODEL]), choice.num_draft_tokens
        accepted = 0
        while accepted < k and world._lucky(accepted):
            accepted += 1
        policy.observe(
            RoundOutcome(
                k, min(accepted + 1, k), accepted, k * world.draft, world.verify(k + 1),
                choice.source,
            )
        )  # fmt: skip
        chosen.append(choice)
    return chosen


@pytest.mark.parametrize(
    ("look_up", "model", "winner"), [(0.9, 0.9, "lookup:4"), (0.1, 0.95, MODEL)]
)
def test_the_source_that_pays_more_is_chosen(look_up: float, model: float, winner: str) -> None:
    chosen = play_two(AdaptiveLength(DEFAULT_COSTS.fresh()), look_up, model, 300)
    late = [choice.source for choice in chosen[100:] if choice.num_draft_tokens]
    assert late.count(winner) > 0.9 * len(late)


def test_the_other_source_is_tried_again_now_and_then() -> None:
    policy = AdaptiveLength(DEFAULT_COSTS.fresh())
    play_two(policy, 0.0, 0.9, 200)
    chosen = play_two(policy, 0.95, 0.5, 600)
    assert chosen[-1].source == "lookup:4"


def test_two_losing_sources_leave_plain_decoding() -> None:
    policy = AdaptiveLength(DEFAULT_COSTS.fresh())
    chosen = play_two(policy, 0.0, 0.0, 300)
    assert sum(choice.num_draft_tokens > 0 for choice in chosen[100:]) < 40
    assert policy.fallback is not None


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_a_slow_first_pass_does_not_set_the_scale(factor: float) -> None:
    """The first passes of a process pay for what is loaded or captured then."""
    costs = CostTable(0.2, {1: 1.0, 5: 1.2})
    costs.measure_draft(0.6 * factor, 0)
    for _ in range(60):
        costs.measure_verify(1, 1.0, 0)
        costs.measure_verify(5, 1.5, 0)
        costs.measure_draft(0.6, 0)
    assert costs.draft(0) == pytest.approx(0.6, rel=0.1)
    assert costs.verify(5, 0)[[0, 4]] == pytest.approx([1.0, 1.5], rel=0.1)


def test_a_stall_is_forgotten() -> None:
    costs = CostTable(0.2, {1: 1.0, 5: 1.2})
    for seconds in [1.0] * 20 + [500.0] * 3 + [1.0] * 40:
        costs.measure_verify(1, seconds, 0)
    assert costs.verify(1, 0)[0] == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0, -1.0, "x"])
def test_costs_that_are_no_costs(bad: object) -> None:
    good = {"draft_seconds": 0.1, "verify_seconds": {"1": 1.0, "5": 1.2}}
    assert CostTable.from_mapping(good) is not None
    assert CostTable.from_mapping({**good, "draft_seconds": bad}) is None
    assert CostTable.from_mapping({**good, "verify_seconds": {"1": 1.0, "5": bad}}) is None


def test_short_generations_probe_too() -> None:
    """What one of them saves up the next may spend."""
    world, savings = World(acceptance=0.9, draft=0.1, marginal=0.02), Savings()
    acceptance, costs = AcceptanceTable(), CostTable(0.1, {1: 1.0, 5: 1.1})
    for _ in range(200):
        acceptance.observe(1, 0)  # one bad text that everyone suffers from
    chosen = []
    for _ in range(60):
        policy = AdaptiveLength(costs, acceptance, savings=savings)
        chosen.append(world.play(policy, 12))
    assert not any(chosen[0])
    assert all(any(generation) for generation in chosen[-5:])
