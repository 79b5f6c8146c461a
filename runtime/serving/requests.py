"""A request among many: where it stands, and the chunks of its text as they arrive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ulp
from time import monotonic

from specdec.runtime.checks import check_real
from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["Event", "Job", "Request", "deadline_after", "is_past"]

Event = Chunk | GenerationResult | BaseException
"""What a request gets: chunks, then its result or an error."""


def deadline_after(timeout: object) -> float | None:
    """The moment (`time.monotonic`) that is `timeout` seconds from now, None without one.

    Raises:
        InvalidParameterError: not a number above 0.
    """
    if timeout is None:
        return None
    allowed = "None or a number of seconds above 0"
    return monotonic() + check_real("timeout", timeout, ulp(0.0), 1e9, allowed)


def is_past(deadline: float | None) -> bool:
    """Whether there is a deadline and it is over."""
    return deadline is not None and monotonic() > deadline


@dataclass(eq=False)
class Job:
    """A request as the scheduler sees it."""

    prompt_ids: list[int]
    params: SamplingParams
    priority: int
    deadline: float | None
    """Of `time.monotonic`."""
    deliver: Callable[[Event], None]
    """Called on the scheduler's thread."""
    number: int = 0
    """Order of arrival."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    generation: Generation | None = None
    submitted: float = field(default_factory=monotonic)
    begun: float | None = None
    """When it got a slot."""

    def cancel(self) -> None:
        """Ask for an end after the present round; from any thread."""
        self.cancelled.set()
        generation = self.generation
        if generation is not None:
            generation.cancel()

    def is_late(self) -> bool:
        """True once the deadline has passed."""
        return self.deadline is not None and monotonic() >= self.deadline


class Request(Closing, Iterator[Chunk]):
    """Iterate over the chunks of one request; close it to cancel; one reader at a time.

    Attributes:
        result: the whole outcome once the chunks have ended, else None.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """Made by `BatchDecoder.submit`; `wake` makes the scheduler look at cancellations."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._wake = wake
        self._job: Job | None = None
        self._ended = False
        self.result: GenerationResult | None = None

    def attach(self, job: Job) -> None:
        """Tell which job this reads; once, before anything is delivered."""
        self._job = job

    def deliver(self, event: Event) -> None:
        """Take one event of the scheduler."""
        self._events.put(event)

    def __iter__(self) -> Request:
        return self

    def __next__(self) -> Chunk:
        """The next chunk.

        Raises:
            SpecdecError: the request failed; the others go on.
        """
        if self._ended:
            raise StopIteration
        event = self._events.get()
        if isinstance(event, Chunk):
            return event
        self._ended = True
        if isinstance(event, GenerationResult):
            self.result = event
            raise StopIteration
        raise event

    def drain(self) -> GenerationResult:
        """Read to the end and return the result."""
        for _ in self:
            pass
        assert self.result is not None
        return self.result

    def cancel(self) -> None:
        """Ask for an end; the result then says "cancelled". From any thread."""
        assert self._job is not None
        self._job.cancel()
        self._wake()

    def close(self) -> None:
        """Cancel unless it has ended. Idempotent."""
        if not self._ended:
            self.cancel()
