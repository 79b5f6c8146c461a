"""Ctrl-C at any bytecode of the turns leaves a decoder that is free and gives the same text."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from specdec.runtime import BusyError, SamplingParams, SpeculativeDecoder
from specdec.runtime.turns import Turns
from tests.hostile.interrupts import interrupt_everywhere
from tests.support.decoders import pair

PARAMS = SamplingParams(max_new_tokens=3, num_draft_tokens=2)
ONE = SamplingParams(max_new_tokens=1, num_draft_tokens=0)
PROMPT = [0, 1]


def generate(decoder: SpeculativeDecoder) -> None:
    decoder.generate(PROMPT, PARAMS)


def close_early(decoder: SpeculativeDecoder) -> None:
    stream = decoder.stream(PROMPT, PARAMS)
    next(stream)
    stream.close()


def drop(decoder: SpeculativeDecoder) -> None:
    stream = decoder.stream(PROMPT, PARAMS)
    next(stream)
    del stream


def converse(decoder: SpeculativeDecoder) -> None:
    session = decoder.session()
    session.generate(PROMPT, ONE)
    session.generate([2], ONE)


@pytest.mark.parametrize("action", [generate, close_early, drop, converse])
def test_no_interrupt_leaves_a_decoder_busy_or_wrong(
    action: Callable[[SpeculativeDecoder], None],
) -> None:
    expected = pair()[0].generate(PROMPT, PARAMS).token_ids

    def check(decoder: SpeculativeDecoder, moment: int) -> None:
        found = decoder.generate(PROMPT, PARAMS, reuse_prefix=True).token_ids
        assert found == expected, moment
        decoder.close()

    assert interrupt_everywhere(lambda: pair()[0], action, check) > 200


def test_an_interrupted_stream_can_be_closed_and_frees_the_decoder() -> None:
    """The stream is held, so only its end can free the decoder."""
    held = {}

    def prepare() -> SpeculativeDecoder:
        decoder = pair()[0]
        held[decoder] = decoder.stream(PROMPT, PARAMS)
        return decoder

    def check(decoder: SpeculativeDecoder, moment: int) -> None:
        held[decoder].close()
        assert held[decoder].result is not None, moment
        decoder.generate(PROMPT, PARAMS)
        held.pop(decoder)

    assert interrupt_everywhere(prepare, lambda decoder: held[decoder].drain(), check) > 100


def test_an_interrupted_turn_is_there_or_is_not() -> None:
    """A session's ids and messages belong to one turn, whenever the interrupt came."""
    expected = pair()[0].generate(PROMPT, PARAMS)
    turn = (*PROMPT, *expected.token_ids)

    def prepare() -> tuple[SpeculativeDecoder, object]:
        decoder = pair()[0]
        return decoder, decoder.session()

    def check(subject: tuple[SpeculativeDecoder, object], moment: int) -> None:
        ids = subject[1].token_ids  # type: ignore[attr-defined]
        assert ids == () or ids == turn[: len(ids)], moment
        assert ids == () or len(ids) >= len(PROMPT), moment

    def action(subject: tuple[SpeculativeDecoder, object]) -> None:
        subject[1].generate(PROMPT, PARAMS)  # type: ignore[attr-defined]

    assert interrupt_everywhere(prepare, action, check) > 200


class Holder:
    ended = False


def race(count: int) -> list[bool]:
    """What so many threads got that asked for one turn at once."""
    turns, start = Turns(), threading.Barrier(count)
    holders = [Holder() for _ in range(count)]
    got: list[bool] = []

    def take(holder: Holder) -> None:
        start.wait()
        got.append(turns.take(holder))

    threads = [threading.Thread(target=take, args=(holder,)) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(got)


def test_one_thread_of_many_gets_the_turn() -> None:
    for _ in range(50):
        assert race(8) == [False] * 7 + [True]


def test_a_turn_whose_holder_is_gone_is_taken_back() -> None:
    turns, first = Turns(), Holder()
    assert turns.take(first)
    assert not turns.take(Holder())
    assert turns.holder() is first
    del first
    assert turns.holder() is None
    second = Holder()
    assert turns.take(second)
    second.ended = True
    assert turns.take(Holder())


def test_a_stream_that_lives_keeps_the_decoder_busy() -> None:
    decoder = pair()[0]
    stream = decoder.stream(PROMPT, PARAMS)
    with pytest.raises(BusyError):
        decoder.generate(PROMPT, PARAMS)
    del stream
    decoder.generate(PROMPT, PARAMS)
