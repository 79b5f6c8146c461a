"""Cancelling and closing, from the consumer and from other threads, at any moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from specdec.runtime import ClosedError, GenerationStream, SamplingParams, SpeculativeDecoder
from specdec.runtime.turns import Holder
from tests.support.decoders import pair

PROMPT = [1, 2]
PARAMS = SamplingParams(max_new_tokens=4000, temperature=1.0, num_draft_tokens=3, seed=1)


@pytest.fixture(autouse=True)
def _busy_switching() -> Iterator[None]:
    """Let threads take turns often, so that they meet at many places."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def long_pair() -> tuple[SpeculativeDecoder, object, object]:
    return pair(max_length=5000, draft_length=5000)


def test_cancel_ends_with_the_round_in_progress() -> None:
    decoder, target, _ = long_pair()
    stream = decoder.stream(PROMPT, PARAMS)
    honest = target.forward

    def forward(token_ids, num_logits):
        stream.cancel()
        return honest(token_ids, num_logits)

    next(stream)
    target.forward = forward
    chunk = next(stream)
    assert chunk.finish_reason == "cancelled"
    assert chunk.token_ids
    assert stream.result.token_ids[-len(chunk.token_ids) :] == chunk.token_ids
    assert list(stream) == []


def test_a_stream_closed_elsewhere_gives_its_reader_a_last_chunk_and_frees_the_decoder() -> None:
    decoder, target, _ = long_pair()
    honest, entered, leave = target.forward, threading.Event(), threading.Event()

    def forward(token_ids, num_logits):
        entered.set()
        leave.wait()
        return honest(token_ids, num_logits)

    target.forward = forward
    stream = decoder.stream(PROMPT, PARAMS)
    chunks = []
    reader = threading.Thread(target=lambda: chunks.append(next(stream)))
    reader.start()
    entered.wait()
    stream.close()
    assert stream.result is None  # the round in progress ends first
    leave.set()
    reader.join()
    target.forward = honest
    assert chunks[0].finish_reason == "cancelled"
    assert stream.result.token_ids == chunks[0].token_ids
    assert decoder.generate(PROMPT, SamplingParams(max_new_tokens=3)).finish_reason == "length"


@pytest.mark.parametrize("shares_cache", [False, True], ids=["own", "shared"])
def test_closing_at_any_moment_from_another_thread(shares_cache: bool) -> None:
    """However the two threads meet: the stream ends once, nothing hangs, the caches are right."""
    decoder, target, _ = pair(shares_cache=shares_cache, max_length=5000, draft_length=5000)
    expected = decoder.generate(PROMPT, SamplingParams(**{**OPTIONS, "max_new_tokens": 600}))
    for attempt in range(60):
        with decoder.session() as session:
            stream = session.stream(PROMPT, PARAMS)
            closing = threading.Thread(target=close_after, args=(stream, attempt % 12))
            closing.start()
            got = [token for chunk in stream for token in chunk.token_ids]
            closing.join()
            kept = stream.result.token_ids
            assert stream.result.finish_reason == "cancelled"
            assert tuple(got) == kept[: len(got)]
            assert kept[:600] == expected.token_ids[: len(kept)]
            assert session.token_ids == (*PROMPT, *kept)
            if kept:  # else it was closed before anything ran, on the cache of the last turn
                assert target.cached == list(session.token_ids[: target.length])
                assert target.length < len(session.token_ids)


OPTIONS = {"temperature": 1.0, "num_draft_tokens": 3, "seed": 1}


def close_after(stream: GenerationStream, spins: int) -> None:
    for _ in range(spins * 300):
        pass
    stream.close()


def test_a_decoder_closed_while_a_request_is_prepared_is_closed_for_it() -> None:
    decoder, _, _ = pair()
    take = decoder._turns.take

    def closing_first(holder: Holder) -> bool:
        decoder._turns.take = take
        decoder.close()
        return take(holder)

    decoder._turns.take = closing_first
    with pytest.raises(ClosedError):
        decoder.stream(PROMPT)
    decoder.close()


def test_a_session_that_was_reset_forgets_its_open_turn() -> None:
    decoder, _, _ = pair()
    session = decoder.session()
    stream = session.stream(PROMPT, SamplingParams(max_new_tokens=8))
    next(stream)
    session.reset()
    stream.close()
    assert session.token_ids == ()
