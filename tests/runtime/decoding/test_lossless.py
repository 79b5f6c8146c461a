"""Exactness through the whole decoder: the distribution of the output equals plain sampling's.

A table engine has few tokens, so every random path of the real decoder is visited and
weighed; the largest error allowed is rounding in float64.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.sampling import verify as verify_module
from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.verify import Verdict
from tests.support.enumeration import (
    Branching,
    chain_distribution,
    exact_distribution,
    largest_error,
)
from tests.support.reducing_engine import ReducingTableEngine
from tests.support.table_engine import TableEngine, nearby_table, random_table

TOLERANCE = 1e-12
PROMPT = [1, 0, 2, 1]
EOS = 2


def decoder_distribution(
    params: SamplingParams,
    *,
    vocab_size: int = 3,
    seed: int = 3,
    shares_cache: bool = False,
    drafter: str = "model",
    noise: float = 0.7,
    order: int = 1,
    prompt: list[int] = PROMPT,
    engine: type[TableEngine] = TableEngine,
    defaults: ModelDefaults = NO_DEFAULTS,
) -> tuple[dict, dict]:
    """(distribution of the decoder's output, distribution of plain sampling)."""
    table = random_table(seed, vocab_size, order)
    target = engine(table, padding=1)
    draft = engine(
        nearby_table(table, seed + 1, noise),
        name="draft",
        padding=3,
        share_cache_with=target if shares_cache else None,
    )
    ends = frozenset([EOS]) if vocab_size > EOS else frozenset()
    current: list[Branching] = []
    decoder = SpeculativeDecoder(
        target,
        draft,
        shares_cache=shares_cache,
        drafter=drafter,
        eos_token_ids=ends,
        make_random=lambda _: current[-1],
        defaults=defaults,
    )

    def program(branching: Branching) -> tuple[int, ...]:
        current.append(branching)
        result = decoder.generate(prompt, params)
        assert target.cached == [*prompt, *result.token_ids][: target.length]
        assert target.length == len(prompt) + len(result.token_ids) - 1
        if not shares_cache:
            assert draft.cached == [*prompt, *result.token_ids][: draft.length]
        return result.token_ids

    return exact_distribution(program), chain_distribution(
        target.logits_after, prompt, params, ends, defaults
    )


def assert_lossless(params: SamplingParams, **kwargs: object) -> None:
    distribution, expected = decoder_distribution(params, **kwargs)
    assert math.isclose(sum(distribution.values()), 1.0, abs_tol=1e-10)
    assert largest_error(distribution, expected) < TOLERANCE


WARPS = {
    "plain": {"temperature": 1.0},
    "cold": {"temperature": 0.6},
    "top_k": {"temperature": 0.9, "top_k": 2},
    "top_p": {"temperature": 1.2, "top_p": 0.8},
    "min_p": {"temperature": 1.1, "min_p": 0.3},
    "filters": {"temperature": 1.3, "top_k": 3, "top_p": 0.9, "min_p": 0.05},
    "repetition": {"temperature": 0.8, "repetition_penalty": 1.7},
    "counts": {"temperature": 0.8, "presence_penalty": 0.7, "frequency_penalty": 0.9},
    "ngram": {"temperature": 0.8, "no_repeat_ngram_size": 3},
    "minimum": {"temperature": 0.8, "min_new_tokens": 2},
    "bias": {"temperature": 0.8, "logit_bias": {0: 1.5, 1: -0.5}},
    "greedy": {"temperature": 0.0},
    "cold_draft": {"temperature": 1.0, "draft_temperature": 0.5},
    "hot_draft": {"temperature": 0.7, "draft_temperature": 1.5, "top_p": 0.9},
    "greedy_draft": {"temperature": 1.0, "draft_temperature": 0.0},
    "greedy_target": {"temperature": 0.0, "draft_temperature": 1.0},
    "all": {
        "temperature": 0.9,
        "top_p": 0.95,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "no_repeat_ngram_size": 4,
        "min_new_tokens": 1,
        "logit_bias": {1: 0.3},
    },
}

ADJUSTED = {"repetition", "counts", "ngram", "minimum", "bias"}
"""Options that change logits before anything is chosen, which takes whole rows."""


@pytest.mark.slow
@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("warp", WARPS)
def test_every_option_keeps_the_targets_distribution(
    warp: str, shares_cache: bool, verify: str
) -> None:
    length = 3 if shares_cache else 4
    params = SamplingParams(
        max_new_tokens=length, num_draft_tokens=length - 1, verify=verify, **WARPS[warp]
    )
    assert_lossless(params, shares_cache=shares_cache)


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("warp", WARPS)
def test_reduced_logits_keep_the_targets_distribution(warp: str, verify: str) -> None:
    """Engines that return the best tokens of a row instead of the row."""
    params = SamplingParams(max_new_tokens=3, num_draft_tokens=2, verify=verify, **WARPS[warp])
    before = ReducingTableEngine.total
    assert_lossless(params, shares_cache=True, engine=ReducingTableEngine)
    whole_rows = {"plain", "cold", "cold_draft", "greedy_draft", "all", *ADJUSTED}
    if warp not in whole_rows:
        assert ReducingTableEngine.total > before


BANS = {
    "always": ModelDefaults(suppress_tokens=(1,)),
    "first": ModelDefaults(begin_suppress_tokens=(0, EOS)),
    "both": ModelDefaults(suppress_tokens=(0,), begin_suppress_tokens=(EOS,)),
}


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("bans", BANS)
@pytest.mark.parametrize("warp", ["plain", "filters", "greedy", "minimum", "all"])
@pytest.mark.parametrize("engine", [TableEngine, ReducingTableEngine])
def test_a_models_bans_keep_the_targets_law(
    warp: str, bans: str, verify: str, engine: type[TableEngine]
) -> None:
    """`suppress_tokens` and `begin_suppress_tokens`, which the draft obeys at every position."""
    params = SamplingParams(max_new_tokens=3, num_draft_tokens=2, verify=verify, **WARPS[warp])
    if warp == "minimum" and bans == "both":
        params = replace(params, min_new_tokens=0)  # else one token is left, and no law
    assert_lossless(params, engine=engine, defaults=BANS[bans])


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 2, 3, 4])
def test_every_draft_length_keeps_the_targets_distribution(
    num_draft_tokens: int, verify: str
) -> None:
    params = SamplingParams(
        max_new_tokens=5, num_draft_tokens=num_draft_tokens, temperature=1.0, verify=verify
    )
    assert_lossless(params, vocab_size=2, prompt=[1, 0], noise=1.2)


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("warp", ["plain", "counts", "greedy"])
@pytest.mark.parametrize("drafter", ["ngram", "hybrid"])
def test_lookup_keeps_the_targets_distribution(drafter: str, warp: str, verify: str) -> None:
    params = SamplingParams(
        max_new_tokens=4, num_draft_tokens=2, ignore_eos=True, verify=verify, **WARPS[warp]
    )
    distribution, _ = decoder_distribution(
        params, drafter=drafter, vocab_size=2, prompt=[0, 1, 0, 0, 1, 0]
    )
    table = random_table(3, 2)
    target = TableEngine(table)
    expected = chain_distribution(target.logits_after, [0, 1, 0, 0, 1, 0], params, frozenset())
    assert largest_error(distribution, expected) < TOLERANCE


@pytest.mark.parametrize("verify", ["token", "block"])
@pytest.mark.parametrize("seed", range(4))
def test_second_order_tables(seed: int, verify: str) -> None:
    params = SamplingParams(max_new_tokens=3, num_draft_tokens=2, temperature=1.0, verify=verify)
    assert_lossless(params, seed=seed, order=2, noise=1.5)


@pytest.mark.parametrize("verify", ["token", "block"])
def test_adaptive_length_keeps_the_targets_distribution(verify: str) -> None:
    params = SamplingParams(
        max_new_tokens=4, num_draft_tokens="auto", temperature=1.0, verify=verify, seed=1
    )
    assert_lossless(params, vocab_size=2, prompt=[1])


def verify_with_raw_draft(target_probs, draft_probs, draft_tokens, random):
    """Planted fault: the accept test uses a draft distribution the token was not drawn from."""
    for i, token in enumerate(draft_tokens):
        flat = 1.0 / draft_probs[i].vocab_size
        if not random.accepts(i, target_probs[i].prob(token) / flat):
            return Verdict(i, random.final(target_probs[i].residual(draft_probs[i])), i + 1)
    return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)


def verify_without_residual(target_probs, draft_probs, draft_tokens, random):
    """Planted fault: the correction is drawn from the target instead of the residual."""
    for i, token in enumerate(draft_tokens):
        if not random.accepts(i, target_probs[i].prob(token) / draft_probs[i].prob(token)):
            return Verdict(i, random.final(target_probs[i]), i + 1)
    return Verdict(len(draft_tokens), random.final(target_probs[len(draft_tokens)]), 0)


@pytest.mark.parametrize("fault", [verify_with_raw_draft, verify_without_residual])
def test_planted_faults_are_seen(fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(verify_module.VERIFIERS, "token", fault)
    params = SamplingParams(max_new_tokens=2, num_draft_tokens=1, temperature=0.8, verify="token")
    distribution, expected = decoder_distribution(params)
    assert largest_error(distribution, expected) > 1e-3


def test_dropping_an_improbable_draft_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bias that the drafters' rule forbids: draw, look at the probability, drop."""
    from specdec.runtime.drafting.drafter import ModelDrafter, Proposal

    honest = ModelDrafter.propose

    def dropping(self, committed, source, max_tokens, context):
        draft = honest(self, committed, source, max_tokens, context)
        if draft.draft_probs[0].prob(draft.tokens[0]) < 0.4:
            return Proposal()
        return draft

    monkeypatch.setattr(ModelDrafter, "propose", dropping)
    params = SamplingParams(max_new_tokens=2, num_draft_tokens=1, temperature=1.0)
    distribution, expected = decoder_distribution(params)
    assert largest_error(distribution, expected) > 1e-3


def test_chain_distribution_is_not_trivial() -> None:
    params = SamplingParams(max_new_tokens=3, temperature=1.0)
    target = TableEngine(random_table(3, 3))
    distribution = chain_distribution(target.logits_after, PROMPT, params, frozenset([EOS]))
    assert len(distribution) > 8
    assert np.isclose(sum(distribution.values()), 1.0)
