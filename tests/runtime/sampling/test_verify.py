"""Verification rules on arrays: exact identities by enumeration, laziness, untouched inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specdec.runtime import NoTokenLeftError
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.randomness import CoupledRandom
from specdec.runtime.sampling.verify import Verdict, verify_block, verify_coupled, verify_token
from tests.support.enumeration import Branching

SIZE = 3


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Pair:
    """Target and draft distributions that depend on every drafted token before them."""

    def __init__(self, seed: int, num_draft: int, distance: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.num_draft = num_draft
        self.target, self.draft = {}, {}
        for length in range(num_draft + 1):
            for prefix in np.ndindex(*(SIZE,) * length):
                logits = rng.normal(size=SIZE)
                self.target[prefix] = softmax(logits)
                self.draft[prefix] = softmax(logits + distance * rng.normal(size=SIZE))

    def rows(self, tokens: tuple[int, ...]) -> tuple[list[Distribution], list[Distribution]]:
        targets = [Distribution.dense(self.target[tokens[:i]]) for i in range(len(tokens) + 1)]
        drafts = [Distribution.dense(self.draft[tokens[:i]]) for i in range(len(tokens))]
        return targets, drafts

    def drafted(self) -> list[tuple[tuple[int, ...], float]]:
        out = []
        for tokens in np.ndindex(*(SIZE,) * self.num_draft):
            weight = math.prod(self.draft[tokens[:i]][t] for i, t in enumerate(tokens))
            out.append((tokens, weight))
        return out


def verdicts(rule, targets, drafts, tokens) -> list[tuple[Verdict, float]]:
    todo, out = [[]], []
    while todo:
        branching = Branching(todo.pop())
        branching.begin(0)
        out.append((rule(targets, drafts, tokens, branching), branching.weight))
        todo.extend(branching.open)
    return out


def expected_accepted(rule, pair: Pair) -> float:
    total = 0.0
    for tokens, weight in pair.drafted():
        outcomes = verdicts(rule, *pair.rows(tokens), tokens)
        total += weight * sum(w * v.num_accepted for v, w in outcomes)
    return total


@pytest.mark.parametrize("num_draft", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_block_accepts_the_sum_of_its_scales(seed: int, num_draft: int) -> None:
    """E[tau] = sum_i E[a_i] (Sun et al., 2025)."""
    pair = Pair(seed, num_draft)
    scales = 0.0
    for tokens, weight in pair.drafted():
        a = 1.0
        for i, token in enumerate(tokens):
            a = min(1.0, a * pair.target[tokens[:i]][token] / pair.draft[tokens[:i]][token])
            scales += weight * a
    assert expected_accepted(verify_block, pair) == pytest.approx(scales, abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_block_never_accepts_less_than_token(seed: int) -> None:
    pair = Pair(seed, 3, distance=1.5)
    block, token = expected_accepted(verify_block, pair), expected_accepted(verify_token, pair)
    assert block >= token - 1e-12
    assert block > token + 1e-4  # and more on any pair that differs


@pytest.mark.parametrize("rule", [verify_token, verify_block])
def test_one_drafted_token_follows_the_target(rule) -> None:
    pair = Pair(1, 1)
    first = np.zeros(SIZE)
    for tokens, weight in pair.drafted():
        for verdict, w in verdicts(rule, *pair.rows(tokens), tokens):
            committed = [*tokens[: verdict.num_accepted], verdict.token]
            first[committed[0]] += weight * w
    np.testing.assert_allclose(first, pair.target[()], atol=1e-12)


@pytest.mark.parametrize("rule", [verify_token, verify_block])
def test_equal_distributions_accept_everything(rule) -> None:
    pair = Pair(2, 3, distance=0.0)
    for tokens, _ in pair.drafted():
        for verdict, _w in verdicts(rule, *pair.rows(tokens), tokens):
            assert verdict.num_accepted == 3
            assert verdict.num_evaluated == 3


@pytest.mark.parametrize("rule", [verify_token, verify_block])
def test_inputs_are_unchanged(rule) -> None:
    pair = Pair(3, 2)
    for tokens, _ in pair.drafted():
        targets, drafts = pair.rows(tokens)
        kept = [distribution.probs.copy() for distribution in targets + drafts]
        verdicts(rule, targets, drafts, tokens)
        for distribution, probs in zip(targets + drafts, kept, strict=True):
            np.testing.assert_array_equal(distribution.probs, probs)


def test_block_equals_token_for_one_hot_drafts() -> None:
    pair = Pair(4, 2)
    for tokens, _ in pair.drafted():
        targets, _drafts = pair.rows(tokens)
        hot = [Distribution.one_hot(t, SIZE, np.float64) for t in tokens]
        distributions = []
        for rule in (verify_token, verify_block):
            distribution: dict[tuple[int, int], float] = {}
            for verdict, w in verdicts(rule, targets, hot, tokens):
                key = (verdict.num_accepted, verdict.token)
                distribution[key] = distribution.get(key, 0.0) + w
            distributions.append(distribution)
        for key in distributions[0].keys() | distributions[1].keys():
            assert distributions[0].get(key, 0.0) == pytest.approx(
                distributions[1].get(key, 0.0), abs=1e-12
            )


class Counting(list):
    """Notes which rows are asked for."""

    def __init__(self, items) -> None:
        super().__init__(items)
        self.asked: set[int] = set()

    def __getitem__(self, index):
        self.asked.add(index)
        return super().__getitem__(index)


@pytest.mark.parametrize("rule", [verify_token, verify_block, verify_coupled])
def test_rows_after_a_greedy_rejection_are_never_asked_for(rule) -> None:
    target = Counting([Distribution.one_hot(t, SIZE) for t in (0, 1, 2, 0, 0)])
    draft = [Distribution.one_hot(t, SIZE) for t in (0, 2, 2, 0)]
    verdict = rule(target, draft, [0, 2, 2, 0], CoupledRandom(1))
    assert verdict == Verdict(num_accepted=1, token=1, num_evaluated=2)
    assert target.asked == {0, 1}


class Exhausted(list):
    """Rows of which one leaves no token."""

    def __getitem__(self, index):
        if index == 2:
            raise NoTokenLeftError("no token is left")
        return super().__getitem__(index)


def test_bans_that_empty_a_later_row_matter_only_when_it_is_reached() -> None:
    half = Distribution.dense(np.array([0.5, 0.5, 0.0]))
    target = Exhausted([half] * 4)
    hot = [Distribution.one_hot(0, SIZE, np.float64)] * 3
    todo, outcomes = [[]], {"rejected": 0.0, "reached": 0.0}
    while todo:
        branching = Branching(todo.pop())
        branching.begin(0)
        try:
            verify_block(target, hot, [0, 0, 0], branching)
            outcomes["rejected"] += branching.weight
        except NoTokenLeftError:
            outcomes["reached"] += branching.weight
        todo.extend(branching.open)
    assert outcomes == {"rejected": 0.75, "reached": 0.25}


def test_a_drafted_token_without_its_distribution_is_an_internal_error() -> None:
    target = [Distribution.one_hot(0, SIZE)] * 2
    with pytest.raises(AssertionError, match="needs its distribution"):
        verify_token(target, [], [0], CoupledRandom(1))
