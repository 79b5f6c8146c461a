"""Sessions: the cache is reused, and every turn equals a fresh run over the same ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec.runtime import (
    ClosedError,
    EngineError,
    PromptError,
    SamplingParams,
    SpeculativeDecoder,
)
from specdec.runtime.decoding.caches import common_prefix
from specdec.runtime.text.chat import ChatTemplate
from tests.support.decoders import CHAT, END, NUM_LETTER_TOKENS, USER, letter_codec, pair
from tests.support.table_engine import TableEngine, nearby_table, random_table

PARAMS = SamplingParams(max_new_tokens=7, temperature=1.0, num_draft_tokens=3, seed=3)


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("drafter", ["model", "ngram", "hybrid"])
def test_turns_equal_fresh_runs_and_reuse_the_cache(drafter: str, shares_cache: bool) -> None:
    decoder, target, draft = pair(
        shares_cache=shares_cache, drafter=drafter, max_length=200, draft_length=200
    )
    fresh, _, _ = pair(shares_cache=shares_cache, drafter=drafter, max_length=200, draft_length=200)
    with decoder.session() as session:
        for turn in range(4):
            prompt = [turn, 4, 1]
            ids = [*session.token_ids, *prompt]
            target.calls.clear()
            result = session.generate(prompt, PARAMS)
            assert result.prompt_token_ids == tuple(ids)
            assert result.token_ids == fresh.generate(ids, PARAMS).token_ids
            assert session.token_ids == (*ids, *result.token_ids)
            assert target.cached == list(session.token_ids[:-1])
            assert draft.cached == list(session.token_ids[: draft.length])
            # Only what is new is computed: last turn's pending token and this prompt's start.
            start, tokens, _ = target.calls[0]
            assert start == max(0, len(ids) - 4)
            assert len(tokens) == min(3, len(ids) - 1)
    with pytest.raises(ClosedError):
        session.generate([1])
    assert decoder.generate([1], PARAMS).token_ids == fresh.generate([1], PARAMS).token_ids


def test_plain_turns_between_drafted_ones() -> None:
    """The draft's own cache falls behind while decoding is plain, and must not go stale."""
    decoder, _, draft = pair(max_length=200, draft_length=200)
    fresh, _, _ = pair(max_length=200, draft_length=200)
    plain = SamplingParams(max_new_tokens=7, temperature=1.0, num_draft_tokens=0, seed=9)
    with decoder.session() as session:
        for params in (PARAMS, plain, PARAMS, plain, plain, PARAMS):
            ids = [*session.token_ids, 2]
            assert session.generate([2], params).token_ids == fresh.generate(ids, params).token_ids
            assert draft.cached == list(session.token_ids[: draft.length])


def test_interleaved_sessions_and_generations() -> None:
    decoder, _, _ = pair(max_length=200, draft_length=200)
    fresh, _, _ = pair(max_length=200, draft_length=200)
    one, two = decoder.session(), decoder.session()
    for turn in range(3):
        for session in (one, two):
            prompt = [turn] if session is one else [4, turn]
            ids = [*session.token_ids, *prompt]
            expected = fresh.generate(ids, PARAMS).token_ids
            assert session.generate(prompt, PARAMS).token_ids == expected
        decoder.generate([3, 3], PARAMS)


def test_a_cancelled_turn_stays_and_a_failed_one_leaves_no_trace() -> None:
    decoder, target, _ = pair(max_length=200, draft_length=200)
    fresh, _, _ = pair(max_length=200, draft_length=200)
    session = decoder.session()
    stream = session.stream([1, 2], PARAMS)
    first = next(stream).token_ids
    stream.close()
    assert session.token_ids == (1, 2, *first)
    before = session.token_ids
    target.calls.clear()
    target.fail_at = 2
    with pytest.raises(EngineError):
        session.generate([3], PARAMS)
    target.fail_at = None
    assert session.token_ids == before
    expected = fresh.generate([*before, 3], PARAMS).token_ids
    assert session.generate([3], PARAMS).token_ids == expected
    session.reset()
    assert session.token_ids == ()
    assert session.generate([1], PARAMS).token_ids == fresh.generate([1], PARAMS).token_ids


@pytest.fixture
def chat(tmp_path: Path) -> tuple[SpeculativeDecoder, SpeculativeDecoder]:
    table = random_table(5, NUM_LETTER_TOKENS, spread=1.0)
    table[:, USER] = -50.0
    codec = letter_codec(tmp_path)

    def build() -> SpeculativeDecoder:
        return SpeculativeDecoder(
            TableEngine(table, max_length=300),
            TableEngine(nearby_table(table, 6), name="draft", max_length=300),
            codec=codec,
            chat=ChatTemplate(CHAT, {}),
            eos_token_ids=[END],
        )

    return build(), build()


def test_messages_are_rendered_as_a_whole(
    chat: tuple[SpeculativeDecoder, SpeculativeDecoder],
) -> None:
    decoder, fresh = chat
    session, history = decoder.session(), []
    for content in ("abc", "de", "f"):
        message = {"role": "user", "content": content}
        history.append(message)
        result = session.generate([message], PARAMS)
        expected = fresh.generate(history, PARAMS)
        assert result.token_ids == expected.token_ids
        assert result.text == expected.text
        history.append({"role": "assistant", "content": result.text})
        assert list(session.messages) == history
    with pytest.raises(PromptError, match="holds messages"):
        session.generate("abc")
    text = decoder.session()
    text.generate("abc", PARAMS)
    with pytest.raises(PromptError, match="holds text or ids"):
        text.generate([{"role": "user", "content": "a"}])


def test_text_turns_are_appended(chat: tuple[SpeculativeDecoder, SpeculativeDecoder]) -> None:
    decoder, fresh = chat
    session = decoder.session()
    first = session.generate("abc", PARAMS)
    second = session.generate("de", PARAMS)
    ids = [0, 1, 2, *first.token_ids, 3, 4]
    assert list(second.prompt_token_ids) == ids
    assert second.text == fresh.generate(ids, PARAMS).text


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2
