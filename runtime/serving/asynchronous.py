"""`AsyncDecoder`: `BatchDecoder` for asyncio.

async with AsyncDecoder(BatchDecoder.load("package")) as decoder:
    async for chunk in decoder.stream("Hello", SamplingParams(max_new_tokens=32)):
        print(chunk.text, end="")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.serving.batch_decoder import BatchDecoder
from specdec.runtime.serving.requests import Event, Job
from specdec.runtime.text.prompts import Prompt

__all__ = ["AsyncDecoder", "AsyncStream"]


class AsyncStream(AsyncIterator[Chunk]):
    """The chunks of one request in an event loop; `aclose` cancels it.

    Attributes:
        result: the whole outcome once the chunks have ended, else None.
    """

    def __init__(self, decoder: BatchDecoder) -> None:
        """Made by `AsyncDecoder.stream`, in a running loop."""
        self._decoder = decoder
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._job: Job | None = None
        self._ended = False
        self.result: GenerationResult | None = None

    async def start(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        tools: Sequence[Mapping[str, Any]] | None,
        priority: int,
        timeout: float | None,
    ) -> None:
        """Tokenize on a worker thread, then queue the request; raises as `submit`."""
        job = await asyncio.to_thread(
            self._decoder.job, prompt, params, self._deliver, tools, priority, timeout
        )
        self._decoder.start(job)
        self._job = job

    @property
    def timed_out(self) -> bool:
        """True when the request ended because its time was over."""
        ended = self.result is not None and self.result.finish_reason == "cancelled"
        return ended and self._job is not None and self._job.is_late()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Chunk:
        """The next chunk; raises the request's error."""
        if self._ended:
            raise StopAsyncIteration
        event = await self._events.get()
        if isinstance(event, Chunk):
            return event
        self._ended = True
        if isinstance(event, GenerationResult):
            self.result = event
            raise StopAsyncIteration
        raise event

    async def drain(self) -> GenerationResult:
        """Read to the end and return the result; cancelled with its task."""
        try:
            async for _ in self:
                pass
        finally:
            await self.aclose()
        assert self.result is not None
        return self.result

    async def aclose(self) -> None:
        """Cancel unless it has ended. Idempotent."""
        if not self._ended and self._job is not None:
            self._job.cancel()
            self._decoder.wake()

    def _deliver(self, event: Event) -> None:
        """Bring an event of the scheduler's thread into the loop, unless that is closed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)


class AsyncDecoder:
    """Requests as coroutines; a task that is cancelled cancels its request."""

    def __init__(self, decoder: BatchDecoder) -> None:
        """Wrap a decoder, which this one closes."""
        self.decoder = decoder

    async def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncStream:
        """Queue a request; arguments and errors as `BatchDecoder.submit`."""
        stream = AsyncStream(self.decoder)
        await stream.start(prompt, params, tools, priority, timeout)
        return stream

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> GenerationResult:
        """`stream`, and wait for the end."""
        stream = await self.stream(prompt, params, tools=tools, priority=priority, timeout=timeout)
        return await stream.drain()

    async def aclose(self) -> None:
        """Close the decoder without blocking the loop."""
        await asyncio.to_thread(self.decoder.close)

    async def __aenter__(self) -> AsyncDecoder:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
