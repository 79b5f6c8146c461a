"""Continuous batching: one loop that runs the passes of all requests together.

Each request plays its own rounds in a greenlet, which stops whenever it needs a pass. When all
have stopped, the loop runs what they wait for: while any of them drafts, one joint step of the
draft; else one joint pass of the target, which verifies every round and reads at most one chunk
of one new prompt beside it, so that nobody waits for more than a chunk.

A request's randomness, history and cache are its own, so what runs beside it cannot change its
law: only how soon it is done, and, where an engine's rounding depends on the pass, near-ties.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

import greenlet
import numpy as np
from numpy.typing import NDArray

from specdec.engines.slots import SlottedEngine
from specdec.runtime.decoding.caches import common_prefix
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.parts import Parts
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.errors import BusyError, ClosedError
from specdec.runtime.serving.batch_costs import BatchCosts
from specdec.runtime.serving.counters import Counters
from specdec.runtime.serving.requests import Job
from specdec.runtime.serving.slot_engine import Pass

__all__ = ["Scheduler"]

_IDLE_SECONDS = 0.5
"""How long the loop sleeps without work before it looks at deadlines again."""


@dataclass(eq=False)
class _Slot:
    """A place for a running request."""

    number: int
    parts: Parts
    job: Job | None = None
    runner: greenlet.greenlet | None = None
    waiting: Pass | None = None


class Scheduler:
    """Runs jobs in slots on a thread of its own."""

    def __init__(
        self,
        draft: SlottedEngine | None,
        parts: Sequence[Parts],
        costs: BatchCosts,
        *,
        max_queue: int,
    ) -> None:
        """Start the thread.

        Args:
            draft: whose passes are joined before the target's; None when no model drafts.
            parts: one for each slot.
            costs: told of every pass.
            max_queue: requests that may wait for a slot.
        """
        self._draft = draft
        self._slots = [_Slot(number, each) for number, each in enumerate(parts)]
        self._costs = costs
        self._max_queue = max_queue
        self._changed = threading.Condition()
        self._queue: list[tuple[int, int, Job]] = []
        self._arrivals = 0
        self._closing = False
        self.counters = Counters()
        self._thread = threading.Thread(target=self._run, name="specdec-scheduler", daemon=True)
        self._thread.start()

    @property
    def num_running(self) -> int:
        """Requests that have a slot."""
        return sum(slot.job is not None for slot in self._slots)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for one."""
        return len(self._queue)

    @property
    def is_alive(self) -> bool:
        """True while its thread runs."""
        return self._thread.is_alive()

    @property
    def has_room(self) -> bool:
        """True while another job would be taken."""
        return not self._closing and len(self._queue) < self._max_queue + self._num_free

    @property
    def _num_free(self) -> int:
        return sum(slot.job is None for slot in self._slots)

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            ClosedError: the decoder is closed.
            BusyError: the queue is full.
        """
        with self._changed:
            if self._closing:
                raise ClosedError("the decoder is closed; load it again")
            if not self.has_room:
                raise BusyError(
                    f"{len(self._slots)} requests run and {len(self._queue)} wait; allowed are "
                    f"{self._max_queue} that wait: try again later"
                )
            self._arrivals += 1
            job.number = self._arrivals
            heapq.heappush(self._queue, (-job.priority, job.number, job))
            self._changed.notify()

    def wake(self) -> None:
        """Make an idle loop look at cancellations."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Cancel everything, deliver what is left, and end the thread. Idempotent."""
        with self._changed:
            self._closing = True
            for _, _, job in self._queue:
                job.cancel()
            for slot in self._slots:
                if slot.job is not None:
                    slot.job.cancel()
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._admit()
            running = [slot for slot in self._slots if slot.waiting is not None]
            if running:
                self._costs.num_running = max(
                    sum(not _pass_of(slot).reads_prompt for slot in running), 1
                )
                self._run_passes(self._chosen(running))
                continue
            with self._changed:
                if not self._queue:
                    if self._closing:
                        return
                    self._changed.wait(_IDLE_SECONDS)

    def _admit(self) -> None:
        """Give free slots to waiting jobs, in the order of priority and arrival."""
        for slot in self._slots:
            if slot.job is not None and slot.job.is_late():
                slot.job.cancel()
        while True:
            with self._changed:
                self._drop_ended()
                free = [slot for slot in self._slots if slot.job is None]
                if not free or not self._queue:
                    return
                job = heapq.heappop(self._queue)[2]
                slot = max(free, key=lambda s: common_prefix(s.parts.caches.ids, job.prompt_ids))
                slot.job = job
            self._begin(slot, job)

    def _drop_ended(self) -> None:
        """Answer jobs that were cancelled, or became late, while they waited."""
        ended = [job for _, _, job in self._queue if job.cancelled.is_set() or job.is_late()]
        if not ended:
            return
        self._queue = [entry for entry in self._queue if entry[2] not in ended]
        heapq.heapify(self._queue)
        for job in ended:
            generation = Generation(self._slots[0].parts, job.prompt_ids, job.params, False)
            generation.stop()
            self._finish(job, generation.result())

    def _begin(self, slot: _Slot, job: Job) -> None:
        job.begun = monotonic()
        slot.runner = greenlet.greenlet(lambda: self._play(slot, job))
        self._resume(slot)

    def _play(self, slot: _Slot, job: Job) -> None:
        """The life of one request, in its greenlet."""
        generation: Generation | None = None
        try:
            generation = Generation(slot.parts, job.prompt_ids, job.params, True)
            job.generation = generation
            if job.cancelled.is_set():  # before it could be told
                generation.cancel()
            while True:
                chunk = generation.next_chunk()
                job.deliver(chunk)
                if chunk.finish_reason is not None:
                    break
            generation.stop()
            self._finish(job, generation.result())
        except BaseException as error:
            if generation is not None:
                generation.stop()
            self.counters.count("error")
            job.deliver(error)
        finally:
            slot.job = slot.runner = None

    def _finish(self, job: Job, result: GenerationResult) -> None:
        self.counters.add(result)
        job.deliver(result)

    def _resume(self, slot: _Slot, *outcome: Any) -> None:
        """Let a request go on until it needs its next pass or has ended."""
        slot.waiting = None
        assert slot.runner is not None
        slot.waiting = slot.runner.switch(*outcome)

    def _chosen(self, running: Sequence[_Slot]) -> list[_Slot]:
        """Whose passes are run now, together."""
        drafting = [slot for slot in running if _pass_of(slot).engine is self._draft]
        joined = drafting or running
        prompts = [slot for slot in joined if _pass_of(slot).reads_prompt]
        rest = [slot for slot in joined if not _pass_of(slot).reads_prompt]
        if not prompts:
            return rest
        first = min(prompts, key=lambda slot: _order(slot.job))
        return [*rest, first]

    def _run_passes(self, slots: Sequence[_Slot]) -> None:
        """Run one joint pass and let its requests go on."""
        passes = [_pass_of(slot) for slot in slots]
        engine = passes[0].engine
        num_rows = sum(len(each.rows.token_ids) for each in passes)
        lengths = [engine.slot_length(each.rows.slot) for each in passes]
        started = perf_counter()
        outcomes = _outcomes(engine, passes)
        seconds = perf_counter() - started
        drafts = engine is self._draft
        self.counters.draft_passes += drafts
        self.counters.target_passes += not drafts
        self.counters.target_rows += 0 if drafts else num_rows
        if not any(each.reads_prompt for each in passes):
            self._costs.measure_pass(drafts, num_rows, seconds, int(np.mean(lengths)))
        for slot, outcome in zip(slots, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._fail(slot, outcome)
            else:
                self._resume(slot, outcome)

    def _fail(self, slot: _Slot, error: Exception) -> None:
        """Raise an engine's error where the request waits."""
        slot.waiting = None
        assert slot.runner is not None
        slot.waiting = slot.runner.throw(error)


def _outcomes(
    engine: SlottedEngine, passes: Sequence[Pass]
) -> Sequence[NDArray[np.floating[Any]] | Exception]:
    """Logits of each pass; where the joint pass fails, only those that fail alone have an error."""
    try:
        return engine.forward_rows([each.rows for each in passes])
    except Exception as error:
        if len(passes) == 1:
            return [error]
    outcomes: list[NDArray[np.floating[Any]] | Exception] = []
    for each in passes:
        try:
            outcomes.append(engine.forward_rows([each.rows])[0].copy())
        except Exception as error:
            outcomes.append(error)
    return outcomes


def _pass_of(slot: _Slot) -> Pass:
    assert slot.waiting is not None
    return slot.waiting


def _order(job: Job | None) -> tuple[int, int]:
    assert job is not None
    return -job.priority, job.number
