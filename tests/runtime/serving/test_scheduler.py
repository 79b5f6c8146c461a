"""Admission, order, joint passes, failures, deadlines and ends of many requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from specdec.engines.errors import EngineError
from specdec.engines.slots import EngineSlots, SlotRows
from specdec.runtime import SamplingParams
from specdec.runtime.errors import (
    BusyError,
    ClosedError,
    InvalidParameterError,
    NumericalError,
    PromptError,
)
from specdec.runtime.serving import AsyncDecoder, BatchDecoder
from tests.support.decoders import pair
from tests.support.serving import batch_of
from tests.support.table_engine import TableEngine, random_table

GREEDY = SamplingParams(max_new_tokens=8)
LONG = SamplingParams(max_new_tokens=40)
PLAIN = SamplingParams(max_new_tokens=40, num_draft_tokens=0)


class HeldSlots(EngineSlots):
    """Slots whose passes wait for `open`, and that write down who shared each of them."""

    def __init__(self, engines: list[TableEngine]) -> None:
        super().__init__(engines)
        self.open = threading.Event()
        self.open.set()
        self.began = threading.Event()
        self.passes: list[dict[int, int]] = []

    def forward_rows(self, rows: list[SlotRows]) -> list[np.ndarray]:
        self.began.set()
        assert self.open.wait(20)
        scored = super().forward_rows(rows)
        self.passes.append({entry.slot: len(entry.token_ids) for entry in rows})
        return scored


def held(num_slots: int, **options: object) -> tuple[BatchDecoder, HeldSlots, list[TableEngine]]:
    engines = [TableEngine(random_table(0, 5), padding=2) for _ in range(num_slots)]
    slots = HeldSlots(engines)
    return BatchDecoder(slots, drafter="ngram", **options), slots, engines  # type: ignore[arg-type]


def test_rows_of_all_requests_share_passes() -> None:
    decoder, slots, _ = held(4)
    with decoder:
        slots.open.clear()
        requests = [decoder.submit([i, 1], GREEDY) for i in range(4)]
        slots.open.set()
        texts = [request.drain().token_ids for request in requests]
    alone, _, _ = pair(drafter="none")
    assert texts == [alone.generate([i, 1], GREEDY).token_ids for i in range(4)]
    assert max(len(shared) for shared in slots.passes) == 4
    assert len(slots.passes) < 4 * 8


def test_the_draft_runs_once_for_all_that_draft() -> None:
    decoder, targets, drafts = batch_of(3, drafter="model")
    params = SamplingParams(max_new_tokens=9, num_draft_tokens=2)
    with decoder:
        for result in [decoder.submit([i], params) for i in range(3)]:
            result.drain()
        counters = decoder.counters
    rounds = max(sum(n > 0 for _, _, n in target.calls) for target in targets)
    steps = max(len(draft.calls) for draft in drafts)
    assert counters.target_passes <= rounds + 4
    assert counters.draft_passes <= steps + 4
    assert counters.new_tokens == 27
    assert counters.drafted >= counters.accepted > 0


def test_a_long_prompt_is_read_in_chunks_between_the_rounds_of_others() -> None:
    decoder, slots, _ = held(2, prefill_chunk=4)
    with decoder:
        slots.open.clear()
        running = decoder.submit([1, 2], PLAIN)
        assert slots.began.wait(10)
        long = decoder.submit([3] * 33, GREEDY)
        slots.open.set()
        long.drain()
        running.drain()
    chunks = [shared for shared in slots.passes if 4 in shared.values()]
    assert len(chunks) == 8
    assert max(sum(shared.values()) for shared in slots.passes) <= 4 + 17
    assert sum(len(shared) == 2 for shared in chunks) >= 7, "the other request went on meanwhile"


def test_a_queue_has_an_end_and_priorities() -> None:
    decoder, slots, engines = held(1, max_queue=2)
    with decoder:
        slots.open.clear()
        first = decoder.submit([1], PLAIN)
        assert slots.began.wait(10)
        low = decoder.submit([2], PLAIN)
        high = decoder.submit([3], PLAIN, priority=5)
        with pytest.raises(BusyError, match=r"1 requests run and 2 wait; allowed are 2 that wait"):
            decoder.submit([4], GREEDY)
        assert (decoder.num_running, decoder.num_waiting) == (1, 2)
        slots.open.set()
        for request in (first, low, high):
            assert request.drain().finish_reason == "length"
    firsts = [tokens for length, tokens, _ in engines[0].calls if length == 0]
    assert firsts == [(1,), (3,), (2,)]


class BrokenEngine(TableEngine):
    """Fails from the third pass on until it is mended."""

    broken = True

    def forward(self, token_ids: np.ndarray, num_logits: int) -> np.ndarray:
        if self.broken and len(self.calls) >= 2:
            raise EngineError("the target engine failed on purpose")
        return super().forward(token_ids, num_logits)


def test_a_failure_is_the_failing_requests_own() -> None:
    table = random_table(0, 5)
    broken = BrokenEngine(table, padding=2)
    engines = [TableEngine(table, padding=2), broken, TableEngine(table, padding=2)]
    slots = HeldSlots(engines)
    alone, _, _ = pair(drafter="none")
    with BatchDecoder(slots, drafter="none") as decoder:
        engines[2].poison = {6: float("nan")}
        slots.open.clear()
        requests = [decoder.submit([1, 2, 3], GREEDY) for _ in range(3)]
        slots.open.set()
        outcomes: list[object] = []
        for request in requests:
            try:
                outcomes.append(request.drain().token_ids)
            except (EngineError, NumericalError) as error:
                outcomes.append(type(error))
        wanted = alone.generate([1, 2, 3], GREEDY).token_ids
        assert sorted(map(str, outcomes)) == sorted(map(str, [wanted, EngineError, NumericalError]))
        engines[2].poison, broken.broken = {}, False
        again = [decoder.submit([1, 2, 3], GREEDY) for _ in range(3)]
        assert [request.drain().token_ids for request in again] == [wanted] * 3
        assert decoder.counters.finished == {"length": 4, "error": 2}


def test_deadlines_end_requests_that_run_and_that_wait() -> None:
    decoder, slots, _ = held(1)
    with decoder:
        slots.open.clear()
        running = decoder.submit([1], LONG, timeout=0.2)
        assert slots.began.wait(10)
        waiting = decoder.submit([2], LONG, timeout=0.1)
        threading.Timer(0.4, slots.open.set).start()
        assert running.drain().finish_reason == "cancelled"
        result = waiting.drain()
        assert (result.finish_reason, result.token_ids) == ("cancelled", ())
        assert decoder.generate([1], GREEDY).finish_reason == "length"


def test_closing_ends_everything() -> None:
    decoder, slots, engines = held(1)
    slots.open.clear()
    requests = [decoder.submit([i], LONG) for i in range(3)]
    threading.Timer(0.1, slots.open.set).start()
    decoder.close()
    assert [request.drain().finish_reason for request in requests] == ["cancelled"] * 3
    assert all(engine.closed for engine in engines)
    decoder.close()
    with pytest.raises(ClosedError):
        decoder.submit([1])


def test_a_closed_request_frees_its_slot() -> None:
    decoder, _, _ = held(1)
    with decoder:
        with decoder.submit([1], LONG) as request:
            next(request)
        assert request.drain().finish_reason in ("cancelled", "length")
        assert decoder.generate([1], GREEDY).finish_reason == "length"


def test_a_shared_prefix_is_read_once() -> None:
    decoder, _, engines = held(1)
    prefix = [1, 2, 3, 4] * 5
    with decoder:
        decoder.generate([*prefix, 0], GREEDY)
        before = len(engines[0].calls)
        decoder.generate([*prefix, 2], GREEDY)
        fed = sum(len(tokens) for _, tokens, n in engines[0].calls[before:] if n == 0)
    assert fed <= 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompt": []}, PromptError, "empty"),
        ({"prompt": [9]}, PromptError, "token id 9"),
        ({"prompt": [1] * 65}, PromptError, "65 tokens"),
        ({"prompt": "text"}, PromptError, "no tokenizer"),
        ({"prompt": [1], "timeout": 0}, InvalidParameterError, "timeout is 0"),
        ({"prompt": [1], "timeout": float("nan")}, InvalidParameterError, "timeout is nan"),
        ({"prompt": [1], "timeout": "1"}, InvalidParameterError, "timeout is '1'; allowed is None"),
        ({"prompt": [1], "priority": 0.5}, InvalidParameterError, "priority is 0.5; allowed"),
        ({"prompt": [1], "params": {"seed": 1}}, InvalidParameterError, "params is dict; allowed"),
    ],
)
def test_refusals_come_before_the_queue(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    decoder, slots, _ = held(1)
    with decoder:
        with pytest.raises(error, match=message):
            decoder.submit(**arguments)  # type: ignore[arg-type]
        assert not slots.passes


def test_pairs_that_do_not_fit() -> None:
    targets = EngineSlots([TableEngine(random_table(0, 5)) for _ in range(2)])
    draft = EngineSlots([TableEngine(random_table(0, 5), name="draft")])
    with pytest.raises(InvalidParameterError, match="the draft has 1 slots and the target has 2"):
        BatchDecoder(targets, draft)
    with pytest.raises(InvalidParameterError, match="max_queue is -1; allowed is an integer >= 0"):
        BatchDecoder(targets, max_queue=-1)
    with pytest.raises(ValueError, match="engines is empty"):
        EngineSlots([])
    with pytest.raises(ValueError, match="differ"):
        EngineSlots([TableEngine(random_table(0, 5)), TableEngine(random_table(0, 6))])


@pytest.mark.parametrize("slots", [[], [0, 0], [2], [-1]])
def test_slots_of_a_pass_are_checked(slots: list[int]) -> None:
    engine = EngineSlots([TableEngine(random_table(0, 5)) for _ in range(2)])
    with pytest.raises(ValueError, match="allowed is"):
        engine.forward_rows([SlotRows(slot, np.array([1]), 1) for slot in slots])
    assert [engine.slot_length(slot) for slot in range(2)] == [0, 0]


def test_a_pass_that_fails_half_way_changes_no_length() -> None:
    engines = [TableEngine(random_table(0, 5)) for _ in range(3)]
    engines[2].fail_at = 0
    slots = EngineSlots(engines)
    with pytest.raises(EngineError):
        slots.forward_rows([SlotRows(slot, np.array([1, 2]), 1) for slot in range(3)])
    assert [slots.slot_length(slot) for slot in range(3)] == [0, 0, 0]


@pytest.fixture
def asynchronous() -> Iterator[BatchDecoder]:
    decoder, _, _ = batch_of(2)
    yield decoder
    decoder.close()


def test_coroutines(asynchronous: BatchDecoder) -> None:
    alone, _, _ = pair()

    async def both() -> list[tuple[int, ...]]:
        async with AsyncDecoder(asynchronous) as decoder:
            results = await asyncio.gather(
                *(decoder.generate([i], GREEDY, timeout=30) for i in range(4))
            )
            stream = await decoder.stream([1], GREEDY)
            streamed = [token async for chunk in stream for token in chunk.token_ids]
            assert stream.result is not None
            assert tuple(streamed) == stream.result.token_ids == results[1].token_ids
            with pytest.raises(PromptError):
                await decoder.generate([])
            return [result.token_ids for result in results]

    texts = asyncio.run(both())
    assert texts == [alone.generate([i], GREEDY).token_ids for i in range(4)]


def test_a_cancelled_task_cancels_its_request() -> None:
    decoder, slots, _ = held(1)

    async def cancelled() -> None:
        async with AsyncDecoder(decoder) as served:
            slots.open.clear()
            task = asyncio.create_task(served.generate([1], LONG))
            while not slots.began.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            slots.open.set()
            result = await served.generate([1], GREEDY)
            assert result.finish_reason == "length"
            assert decoder.counters.finished == {"cancelled": 1, "length": 1}

    asyncio.run(cancelled())
