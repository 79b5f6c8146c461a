"""Random requests through the whole decoder: whatever the options, four things hold.

1. Greedy text, and coupled text of a seed, are those of plain decoding: ids, text, reason to
   end, log-probabilities.
2. A stream joined is the result; counts are of what is in it.
3. After any end, cancelled ones included, the caches are a prefix of what was committed, and the
   next turn of the session is that of a fresh decoder.
4. The same seed gives the same text, whatever ran before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec.runtime import (
    Chunk,
    GenerationResult,
    GenerationStream,
    NoTokenLeftError,
    SamplingParams,
    SpeculativeDecoder,
)
from specdec.runtime.text.codec import TextCodec
from tests.support.decoders import END, LETTERS, NUM_LETTER_TOKENS, letter_codec
from tests.support.table_engine import TableEngine, nearby_table, random_table

pytestmark = pytest.mark.slow

DRAFTERS = ["auto", "model", "ngram", "hybrid"]


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> TextCodec:
    return letter_codec(tmp_path_factory.mktemp("letters"))


def requests(**fixed: Any) -> st.SearchStrategy[SamplingParams]:
    few = st.sampled_from
    options: dict[str, st.SearchStrategy[Any]] = {
        "max_new_tokens": st.integers(4, 30),
        "min_new_tokens": st.integers(0, 4),
        "temperature": few([0.0, 0.7, 1.0, 2.0]),
        "top_k": few([0, 0, 1, 3]),
        "top_p": few([1.0, 1.0, 0.8]),
        "min_p": few([0.0, 0.0, 0.1]),
        "repetition_penalty": few([1.0, 1.0, 1.4]),
        "presence_penalty": few([0.0, 0.0, 0.8]),
        "frequency_penalty": few([0.0, 0.0, -0.4]),
        "no_repeat_ngram_size": few([0, 0, 2, 3]),
        "logit_bias": few([None, None, {0: 2.0, 3: -np.inf}]),
        "stop": st.lists(st.text(LETTERS, min_size=1, max_size=3), max_size=2),
        "stop_token_ids": few([(), (), (2,)]),
        "ignore_eos": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
        "logprobs": few([None, 0, 3]),
        "num_draft_tokens": few([0, 1, 2, 3, 5, 8, "auto"]),
        "verify": few(["block", "token", "coupled"]),
        "skip_special_tokens": st.booleans(),
        "truncate_prompt": few([None, "left"]),
    }
    options |= {name: st.just(value) for name, value in fixed.items()}
    return st.fixed_dictionaries(options).map(lambda given: SamplingParams(**given))


class World:
    """A pair over random tables, with padded logits, its own contexts and any drafter."""

    def __init__(
        self, codec: TextCodec, seed: int, shares_cache: bool, drafter: str, context: int
    ) -> None:
        self.codec, self.shares_cache, self.drafter = codec, shares_cache, drafter
        self.context = context
        self.table = random_table(seed, NUM_LETTER_TOKENS, order=1 + seed % 2)
        self.seed = seed

    def pair(self) -> tuple[SpeculativeDecoder, TableEngine, TableEngine]:
        target = TableEngine(
            self.table, max_length=self.context, padding=self.seed % 4, prefill_chunk=3
        )
        draft = TableEngine(
            nearby_table(self.table, self.seed + 1, 0.8),
            name="draft",
            max_length=self.context if self.shares_cache else self.context - self.seed % 9,
            padding=self.seed % 3,
            share_cache_with=target if self.shares_cache else None,
        )
        decoder = SpeculativeDecoder(
            target,
            draft,
            shares_cache=self.shares_cache,
            drafter=self.drafter,
            codec=self.codec,
            eos_token_ids=[END],
        )
        return decoder, target, draft

    def plain(self) -> SpeculativeDecoder:
        target = TableEngine(self.table, max_length=self.context)
        return SpeculativeDecoder(target, drafter="none", codec=self.codec, eos_token_ids=[END])


worlds = st.tuples(
    st.integers(0, 10**6), st.booleans(), st.sampled_from(DRAFTERS), st.integers(12, 60)
)
prompts = st.lists(st.integers(0, NUM_LETTER_TOKENS - 1), min_size=1, max_size=9)


def outcome(decoder: SpeculativeDecoder, prompt: list[int], params: SamplingParams) -> Any:
    """Everything a request leads to: what a caller sees, or the kind of error."""
    try:
        result = decoder.generate(prompt, params)
    except NoTokenLeftError as error:
        return str(error)
    return result.token_ids, result.text, result.finish_reason, result.logprobs


@settings(max_examples=250, deadline=None)
@given(worlds, prompts, st.one_of(requests(temperature=0.0), requests(verify="coupled")))
def test_equals_plain_decoding(
    codec: TextCodec, world: Any, prompt: list[int], params: SamplingParams
) -> None:
    here = World(codec, *world)
    got = outcome(here.pair()[0], prompt, params)
    assert got == outcome(here.plain(), prompt, replace(params, num_draft_tokens=0))


def read(stream: GenerationStream, num_chunks: int) -> tuple[list[Chunk], str | None]:
    """Read some chunks and close; (chunks, message of the error that ended it)."""
    chunks: list[Chunk] = []
    try:
        chunks.extend(chunk for _, chunk in zip(range(num_chunks), stream, strict=False))
        stream.close()
    except NoTokenLeftError as error:
        return chunks, str(error)
    return chunks, None


def check_result(result: GenerationResult, params: SamplingParams) -> None:
    stats, count = result.stats, len(result.token_ids)
    assert stats.new_tokens == count <= params.max_new_tokens
    assert stats.accepted <= stats.evaluated <= stats.drafted
    assert sum(stats.draft_lengths.values()) == stats.rounds
    assert (result.logprobs is None) == (params.logprobs is None)
    if result.logprobs is not None:
        assert [entry.chosen.token_id for entry in result.logprobs] == list(result.token_ids)
        assert all(len(entry.alternatives) == params.logprobs for entry in result.logprobs)
    assert not any(string in result.text for string in params.stop)
    if result.finish_reason == "length":
        assert count == params.max_new_tokens
    ends = {*params.stop_token_ids, *(() if params.ignore_eos else (END,))}
    assert not ends.intersection(result.token_ids[:-1])
    assert not ends.intersection(result.token_ids[: params.min_new_tokens])


@settings(max_examples=250, deadline=None)
@given(
    worlds,
    st.lists(st.tuples(prompts, requests(), st.integers(0, 12)), min_size=1, max_size=3),
)
def test_streams_cancelled_anywhere_leave_a_session_like_a_fresh_one(
    codec: TextCodec, world: Any, turns: list[tuple[list[int], SamplingParams, int]]
) -> None:
    here = World(codec, *world)
    decoder, target, draft = here.pair()
    with decoder.session() as session:
        for prompt, params, num_chunks in turns:
            before = session.token_ids
            ids = [*before, *prompt]
            if len(ids) > here.context:
                return
            fresh = outcome(here.pair()[0], ids, params)
            stream = session.stream(prompt, params)
            chunks, error = read(stream, num_chunks)
            if error is not None:
                assert error == fresh
                assert session.token_ids == before
                continue
            result = stream.result
            streamed = tuple(token for chunk in chunks for token in chunk.token_ids)
            assert result.token_ids[: len(streamed)] == streamed
            assert result.text.startswith("".join(chunk.text for chunk in chunks))
            check_result(result, params)
            if result.finish_reason != "cancelled":
                assert (result.token_ids, result.text) == fresh[:2]
                assert result.logprobs == fresh[3]
                assert streamed == result.token_ids
            elif not isinstance(fresh, str):
                assert fresh[0][: len(streamed)] == streamed
            committed = [*result.prompt_token_ids, *result.token_ids]
            assert session.token_ids == tuple(committed)
            if chunks:
                assert target.cached == committed[: target.length]
                assert draft.cached == committed[: draft.length]
                assert max(target.length, draft.length) < len(committed)


@settings(max_examples=80, deadline=None)
@given(worlds, prompts, requests(temperature=1.0), requests())
def test_a_seeded_request_is_the_same_whatever_ran_before(
    codec: TextCodec, world: Any, prompt: list[int], params: SamplingParams, other: SamplingParams
) -> None:
    """Row 14 of docs/defects.md: own generator per request, no state from one to the next."""
    here = World(codec, *world)
    decoder = here.pair()[0]
    first = outcome(decoder, prompt, params)
    for _ in range(3):
        outcome(decoder, [1, 2], replace(other, seed=None))
    assert outcome(decoder, prompt, params) == first
    assert outcome(here.pair()[0], prompt, params) == first
