"""Rounds in the whole decoder: caches, ends, contexts, failures, cancellation, equality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.runtime import EngineError, NumericalError, SamplingParams, SpeculativeDecoder
from specdec.runtime.decoding.rounds import RoundLoop
from tests.support.decoders import cycle_table, pair
from tests.support.table_engine import TableEngine, nearby_table, random_table

PROMPT = [1, 2, 3]
DRAFTERS = ["model", "ngram", "hybrid"]


def plain(target: TableEngine, prompt: list[int], params: SamplingParams, **kwargs) -> tuple:
    """The same request without speculation, on an engine of its own."""
    decoder = SpeculativeDecoder(TableEngine(target.table, max_length=64), **kwargs)
    options = {k: getattr(params, k) for k in params.__dataclass_fields__}
    options.update(num_draft_tokens=0, draft_temperature=None)
    result = decoder.generate(prompt, SamplingParams(**options))
    return result.token_ids, result.finish_reason


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_caches_hold_the_committed_prefix_after_every_round(
    drafter: str, shares_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, target, draft = pair(shares_cache=shares_cache, drafter=drafter)
    lengths: list[int] = []
    honest = RoundLoop.play

    def checked(loop: RoundLoop) -> None:
        assert target.cached == loop.caches.ids[:-1]
        honest(loop)
        ids = loop.caches.ids
        assert target.cached == ids[:-1]
        assert draft.cached == ids[: draft.length]
        assert draft.length <= len(ids) - 1
        lengths.append(len(ids))

    monkeypatch.setattr(RoundLoop, "play", checked)
    params = SamplingParams(max_new_tokens=40, temperature=1.0, num_draft_tokens=3, seed=1)
    result = decoder.generate(PROMPT, params)
    assert len(result.token_ids) == 40
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == 43
    assert result.stats.accepted > 0


def test_own_cache_catches_up_in_one_pass_of_two_rows() -> None:
    decoder, _, draft = pair(noise=0.0)
    decoder.generate(PROMPT, SamplingParams(max_new_tokens=9, num_draft_tokens=3))
    # Prefill of two prompt tokens; each full round: [pending] x 3, then [last draft, bonus].
    assert [len(tokens) for _, tokens, _ in draft.calls] == [2, 1, 1, 1, 2, 1, 1]


def test_a_shared_cache_needs_no_prefill_and_no_catching_up() -> None:
    decoder, target, draft = pair(noise=0.0, shares_cache=True)
    decoder.generate(PROMPT, SamplingParams(max_new_tokens=9, num_draft_tokens=3))
    assert [(length, len(tokens)) for length, tokens, _ in draft.calls] == [
        (2, 1), (3, 1), (4, 1), (6, 1), (7, 1), (8, 1),
    ]  # fmt: skip
    assert [(length, len(tokens)) for length, tokens, _ in target.calls] == [
        (0, 2), (2, 4), (6, 4), (10, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("verify", ["block", "token", "coupled"])
@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_a_draft_equal_to_the_target_is_always_accepted(shares_cache: bool, verify: str) -> None:
    decoder, _, _ = pair(6, noise=0.0, shares_cache=shares_cache, max_length=600, draft_length=600)
    params = SamplingParams(
        max_new_tokens=500, temperature=0.9, num_draft_tokens=4, seed=5, verify=verify
    )
    stats = decoder.generate(PROMPT, params).stats
    assert stats.acceptance_rate == 1.0
    assert stats.new_tokens == 500
    assert stats.rounds == 100
    assert stats.tokens_per_round == 5.0


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("engine_name", ["target", "draft"])
def test_a_failure_at_any_pass_leaves_a_usable_decoder(
    engine_name: str, shares_cache: bool
) -> None:
    params = SamplingParams(max_new_tokens=12, temperature=1.0, num_draft_tokens=3, seed=2)
    decoder, target, draft = pair(shares_cache=shares_cache)
    expected = decoder.generate(PROMPT, params).token_ids
    engine = {"target": target, "draft": draft}[engine_name]
    passes = len(engine.calls)
    assert passes > 4
    for at in range(passes):
        engine.calls.clear()
        engine.fail_at = at
        stream = decoder.stream(PROMPT, params)
        with pytest.raises(EngineError, match=f"the {engine_name} engine failed"):
            list(stream)
        got = list(stream.result.token_ids)
        assert tuple(got) == expected[: len(got)]
        committed = [*PROMPT, *got]
        assert target.cached == committed[: target.length]
        assert draft.cached == committed[: draft.length]
        assert target.length < len(committed)
        engine.fail_at = None
        assert decoder.generate(PROMPT, params).token_ids == expected


def test_nan_names_the_engine_and_the_position() -> None:
    decoder, target, draft = pair()
    params = SamplingParams(max_new_tokens=8, num_draft_tokens=0)
    target.poison = {6: np.nan}
    with pytest.raises(NumericalError, match=r"the target engine .* position 6"):
        decoder.generate(PROMPT, params)
    target.poison = {}
    draft.poison = {4: np.inf}
    with pytest.raises(NumericalError, match=r"the draft engine .* position 4"):
        decoder.generate(PROMPT, SamplingParams(max_new_tokens=8, num_draft_tokens=4))
    draft.poison = {}
    assert len(decoder.generate(PROMPT, params).token_ids) == 8


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_closing_at_any_chunk_keeps_what_was_generated(shares_cache: bool) -> None:
    params = SamplingParams(max_new_tokens=15, temperature=1.0, num_draft_tokens=3, seed=4)
    decoder, target, _ = pair(shares_cache=shares_cache)
    expected = decoder.generate(PROMPT, params).token_ids
    num_chunks = len(list(decoder.stream(PROMPT, params)))
    for stop_after in range(num_chunks):
        stream = decoder.stream(PROMPT, params)
        got = [token for _ in range(stop_after) for token in next(stream).token_ids]
        stream.close()
        assert stream.result is not None
        assert stream.result.finish_reason == "cancelled"
        assert list(stream.result.token_ids) == got
        assert tuple(got) == expected[: len(got)]
        assert list(stream) == []
        assert target.length == (len(PROMPT) + len(got) - 1 if stop_after else target.length)
    assert decoder.generate(PROMPT, params).token_ids == expected


@pytest.mark.parametrize("verify", ["block", "token", "coupled"])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 2, 3, 5, 8])
def test_everything_is_cut_at_an_end_token_inside_a_block(
    num_draft_tokens: int, verify: str
) -> None:
    table = cycle_table({0: 1, 1: 2, 2: 3, 3: 4, 4: 0}, 5)
    target, draft = TableEngine(table), TableEngine(table, name="draft")
    decoder = SpeculativeDecoder(target, draft, eos_token_ids=[4])
    params = SamplingParams(
        max_new_tokens=20, num_draft_tokens=num_draft_tokens, verify=verify, logprobs=1
    )
    result = decoder.generate([0], params)
    assert result.token_ids == (1, 2, 3, 4)
    assert result.finish_reason == "stop"
    assert [entry.chosen.token_id for entry in result.logprobs] == [1, 2, 3, 4]
    assert target.cached == [0, 1, 2, 3]
    assert draft.cached == [0, 1, 2, 3][: draft.length]
    assert result.stats.new_tokens == 4
    ignoring = SamplingParams(max_new_tokens=7, num_draft_tokens=3, ignore_eos=True)
    assert decoder.generate([0], ignoring).token_ids == (1, 2, 3, 4, 0, 1, 2)
    stop_id = SamplingParams(max_new_tokens=7, num_draft_tokens=3, stop_token_ids=[2])
    assert decoder.generate([0], stop_id).token_ids == (1, 2)


def test_the_drafts_own_end_token_ends_drafting_only() -> None:
    target = TableEngine(cycle_table({0: 1, 1: 2, 2: 3, 3: 0}, 5))
    draft = TableEngine(cycle_table({0: 1, 1: 4, 4: 1, 2: 3, 3: 0}, 5), name="draft")
    decoder = SpeculativeDecoder(target, draft, eos_token_ids=[4])
    result = decoder.generate([0], SamplingParams(max_new_tokens=8, num_draft_tokens=4))
    assert result.token_ids == (1, 2, 3, 0, 1, 2, 3, 0)
    assert result.finish_reason == "length"
    assert result.stats.draft_lengths[2] >= 1  # [1, 4] and no further


def test_token_zero_is_a_token() -> None:
    table = cycle_table({0: 0}, 3)
    decoder = SpeculativeDecoder(TableEngine(table), TableEngine(table, name="draft"))
    for k in (0, 3):
        result = decoder.generate([0], SamplingParams(max_new_tokens=6, num_draft_tokens=k))
        assert result.token_ids == (0,) * 6
    ends = SpeculativeDecoder(TableEngine(table), eos_token_ids=[0])
    assert ends.generate([1], SamplingParams(max_new_tokens=6)).token_ids == (0,)


@pytest.mark.parametrize("num_draft_tokens", [0, 3])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 4, 5, 6])
def test_exactly_max_new_tokens(max_new_tokens: int, num_draft_tokens: int) -> None:
    decoder, _, _ = pair(noise=0.0)
    params = SamplingParams(max_new_tokens=max_new_tokens, num_draft_tokens=num_draft_tokens)
    result = decoder.generate(PROMPT, params)
    assert len(result.token_ids) == max_new_tokens
    assert result.finish_reason == "length"
    assert sum(n * k for k, n in result.stats.draft_lengths.items()) == result.stats.drafted
    assert result.stats.drafted < max_new_tokens


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 4])
def test_the_context_can_be_filled_to_the_last_token(
    num_draft_tokens: int, shares_cache: bool
) -> None:
    decoder, target, _ = pair(max_length=10, draft_length=10, shares_cache=shares_cache)
    params = SamplingParams(max_new_tokens=50, num_draft_tokens=num_draft_tokens)
    result = decoder.generate(PROMPT, params)
    assert result.finish_reason == "context"
    assert len(result.token_ids) == 8  # the last token needs no room in the cache
    assert target.length == 10
    full = decoder.generate([1] * 10, params)
    assert len(full.token_ids) == 1
    assert full.finish_reason == "context"


@pytest.mark.parametrize("drafter", ["model", "hybrid"])
def test_a_draft_with_a_shorter_context_stops_drafting(drafter: str) -> None:
    decoder, target, draft = pair(draft_length=8, drafter=drafter)
    params = SamplingParams(max_new_tokens=30, num_draft_tokens=4)
    result = decoder.generate(PROMPT, params)
    assert (result.token_ids, "length") == plain(target, PROMPT, params)
    assert draft.length <= 8
    if drafter == "model":
        assert result.stats.fallback == "the draft's context is full"
    long = decoder.generate([1, 2] * 6, params)
    assert (long.token_ids, "length") == plain(target, [1, 2] * 6, params)


def sampling_options() -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries(
        {
            "max_new_tokens": st.integers(6, 24),
            "min_new_tokens": st.integers(0, 6),
            "repetition_penalty": st.sampled_from([1.0, 1.3, 0.8]),
            "presence_penalty": st.sampled_from([0.0, 0.6]),
            "frequency_penalty": st.sampled_from([0.0, 0.3]),
            "no_repeat_ngram_size": st.sampled_from([0, 3, 4]),
            "logit_bias": st.sampled_from([None, {0: 1.0, 3: -2.0}]),
            "stop_token_ids": st.sampled_from([(), (3,)]),
            "num_draft_tokens": st.sampled_from([1, 2, 3, 5, "auto"]),
            "verify": st.sampled_from(["block", "token", "coupled"]),
        }
    )


@settings(max_examples=150, deadline=None)
@given(
    sampling_options(), st.integers(0, 10**6), st.sampled_from(DRAFTERS), st.booleans(),
    st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
def test_greedy_equals_plain_token_for_token(
    options: dict, seed: int, drafter: str, shares_cache: bool, dtype: type
) -> None:
    decoder, target, _ = pair(
        7, seed=seed, drafter=drafter, shares_cache=shares_cache, eos_token_ids=[6], dtype=dtype
    )
    params = SamplingParams(**options)
    result = decoder.generate([1, 5, 2, 5], params)
    expected = plain(target, [1, 5, 2, 5], params, eos_token_ids=[6])
    assert (result.token_ids, result.finish_reason) == expected


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from([1, 2, 4, "auto"]), st.sampled_from(DRAFTERS),
    st.sampled_from([{}, {"top_k": 3}, {"top_p": 0.8}, {"draft_temperature": 0.3}]),
)  # fmt: skip
def test_coupled_text_depends_on_the_seed_alone(
    seed: int, num_draft_tokens: object, drafter: str, extra: dict
) -> None:
    if drafter == "ngram":
        extra = {k: v for k, v in extra.items() if k != "draft_temperature"}
    params = SamplingParams(
        max_new_tokens=20, temperature=1.0, seed=seed, verify="coupled",
        num_draft_tokens=num_draft_tokens, **extra,
    )  # fmt: skip
    decoder, target, _ = pair(6, seed=seed, drafter=drafter, noise=2.0)
    assert (decoder.generate(PROMPT, params).token_ids, "length") == plain(target, PROMPT, params)


def test_prefill_runs_in_chunks_without_logits() -> None:
    table = random_table(1, 5)
    target = TableEngine(table, prefill_chunk=4)
    draft = TableEngine(nearby_table(table, 2), name="draft", prefill_chunk=3)
    decoder = SpeculativeDecoder(target, draft)
    decoder.generate([1] * 11, SamplingParams(max_new_tokens=2, num_draft_tokens=1))
    assert [(len(t), n) for _, t, n in target.calls[:3]] == [(4, 0), (4, 0), (2, 0)]
    assert [(len(t), n) for _, t, n in draft.calls[:4]] == [(3, 0), (3, 0), (3, 0), (1, 0)]


def test_bans_that_empty_a_drafted_position_do_not_end_the_generation() -> None:
    """Every token may appear once; the draft runs out of tokens before the output ends."""
    decoder, target, _ = pair(5)
    params = SamplingParams(max_new_tokens=3, num_draft_tokens=4, no_repeat_ngram_size=1)
    result = decoder.generate([1, 2], params)
    assert (result.token_ids, "length") == plain(target, [1, 2], params)
    assert sorted(result.token_ids) == [0, 3, 4]
