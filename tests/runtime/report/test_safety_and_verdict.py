"""When a pair is unsafe, worth it or not, and what the words say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specdec.runtime.report.contents import (
    Agreement,
    Alternative,
    GreedyPair,
    Measured,
    Parity,
    Prediction,
    Verdict,
)
from specdec.runtime.report.model import SpeedModel
from specdec.runtime.report.safety import (
    compare_greedy,
    greedy_problem,
    measure_parity,
    original_problem,
    parity_problem,
)
from specdec.runtime.report.speeds import predict
from specdec.runtime.report.verdict import judge
from tests.support.table_engine import TableEngine, random_table

SAME = Agreement(100, 0.0, 1.0, 1.0, 10.0, 10.0)


def test_an_engine_may_differ_by_rounding_and_no_more() -> None:
    assert original_problem(SAME) is None
    assert original_problem(replace(SAME, argmax_agreement=0.9, kl_divergence=0.05)) is None
    assert "agreement 0.890" in str(original_problem(replace(SAME, argmax_agreement=0.89)))
    assert "KL 0.06" in str(original_problem(replace(SAME, kl_divergence=0.06)))


def test_parity_of_an_engine_that_is_sound() -> None:
    parity = measure_parity(TableEngine(random_table(0, 5)), [1, 2, 3, 4, 0, 1], 4)
    assert parity.max_logit_difference == 0.0
    assert parity.argmax_agreement == 1.0
    assert parity_problem(parity) is None
    broken = replace(parity, max_logit_difference=0.03 * parity.logit_span)
    assert "4 rows a pass differ" in str(parity_problem(broken))


def test_greedy_texts_may_part_only_where_the_choice_was_close() -> None:
    table = random_table(0, 5)
    target = TableEngine(table)
    prompt, plain = [1], [2, 3]
    second, first = sorted(target.logits_after([1, 2]))[-2:]
    greedy = compare_greedy(target, [(prompt, plain, plain), (prompt, plain, [2, 4])])
    assert (greedy.texts, greedy.equal, greedy.tokens) == (2, 1, 4)
    assert greedy.largest_margin == pytest.approx(first - second, rel=1e-5)
    assert greedy_problem(greedy, noise=first - second) is None
    assert "apart" in str(greedy_problem(greedy, noise=(first - second) / 8))
    assert greedy_problem(GreedyPair(2, 2, 4, None), noise=0.0) is None
    shorter = compare_greedy(target, [(prompt, plain, [2])])
    assert shorter.equal == 0, "a text that ends early is another text"


def model(draft: float) -> SpeedModel:
    return SpeedModel(tuple(k * draft + 0.02 + 0.001 * k for k in range(9)), draft)


def figures(draft: float, alpha: float, speedup: float) -> tuple[Any, ...]:
    from specdec.runtime.report.contents import Acceptance

    counts = Acceptance("all", 0.0, 100, tuple((100, round(100 * alpha)) for _ in range(8)))
    costs = model(draft)
    prediction: Prediction = predict(costs, counts)
    measured = Measured(
        *("all", 0.0, str(prediction.best), 6, 192, 50.0, 50.0 * speedup),
        *(speedup, speedup - 0.1, speedup + 0.1, speedup),
    )
    alternatives = (
        Alternative("the target alone", 50.0, 1.0, 1.0, 0.0, 32, 32),
        Alternative("the draft alone", 150.0, 3.0, 0.96, 0.01, 21, 32),
    )
    return [measured], [prediction], costs, alternatives


def verdict(draft: float, alpha: float, speedup: float, *problems: str) -> Verdict:
    return judge(problems, *figures(draft, alpha, speedup))


def test_worth_it_names_the_gain_and_the_honest_alternative() -> None:
    found = verdict(0.005, 0.9, 1.8)
    assert found.decision == "worth it"
    assert found.headline.startswith("Worth it: 1.80 times")
    assert "95 % interval 1.70 to 1.90" in found.reasons[0]
    assert "the draft alone runs at 150.0 tokens/s" in found.changes[0]
    assert "first 21 of 32 tokens" in found.changes[0]


def test_slower_categories_are_named() -> None:
    measured, predictions, costs, alternatives = figures(0.005, 0.9, 1.8)
    slow = replace(measured[0], category="maths", speedup=0.8)
    found = judge([], [*measured, slow], predictions, costs, alternatives)
    assert any("Slower than plain for maths" in reason for reason in found.reasons)


def test_look_ups_are_told_but_do_not_make_a_draft_worth_it() -> None:
    measured, predictions, costs, alternatives = figures(0.015, 0.5, 0.8)
    default = replace(measured[0], num_draft_tokens="auto", speedup=2.3, predicted=None)
    found = judge([], [*measured, default], predictions, costs, alternatives)
    assert found.decision == "not worth it"
    assert any("looking up in the text: 2.30 times" in reason for reason in found.reasons)


def test_not_worth_it_says_what_would_change_it() -> None:
    found = verdict(0.015, 0.5, 0.8)
    assert found.decision == "not worth it"
    assert "breaks even at" in found.reasons[2]
    text = " ".join(found.changes)
    assert "accepted more than" in text
    assert "ms instead of 15.00" in text
    assert "falls back to plain decoding" in text


def test_a_gain_below_the_threshold_is_not_worth_a_second_model() -> None:
    assert verdict(0.005, 0.9, 1.04).decision == "not worth it"
    assert verdict(0.005, 0.9, 1.05).decision == "worth it"


def test_where_no_draft_is_fast_enough() -> None:
    found = verdict(0.03, 0.02, 0.4)
    assert any("no draft is fast enough" in change for change in found.changes)


def test_unsafe_comes_first() -> None:
    found = verdict(0.005, 0.9, 1.8, "the engine is wrong")
    assert found.decision == "unsafe"
    assert found.reasons == ("the engine is wrong",)


def test_without_a_draft_model() -> None:
    measured, _, _, alternatives = figures(0.005, 0.9, 1.3)
    found = judge([], measured, [], None, alternatives[:1])
    assert found.decision == "no draft"
    assert "50.0 tokens/s" in found.headline
    assert "1.30 times" in found.reasons[0]


def test_noise_is_judged_against_the_span() -> None:
    parity = Parity(5, 40, 0.5, 45.0, 1.0)
    assert parity_problem(parity) is None
    assert parity_problem(replace(parity, logit_span=20.0)) is not None
