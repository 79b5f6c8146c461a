"""Answers piece by piece, as server-sent events, and the times that metrics tell of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.errors import SpecdecError
from specdec.runtime.serving.asynchronous import AsyncStream
from specdec.runtime.serving.batch_decoder import BatchDecoder
from specdec.runtime.serving.http.answers import (
    ChatAnswers,
    CompletionAnswers,
    error_body,
    figures,
    spans,
)
from specdec.runtime.serving.http.metrics import Metrics
from specdec.runtime.serving.http.wire import GenerationRequest

__all__ = ["EventStream", "TimedOutError", "sse", "timed"]


class EventStream(StreamingResponse):
    """Server-sent events of some streams, which end with it, even if it never began."""

    def __init__(self, events: AsyncIterator[bytes], streams: Sequence[AsyncStream]) -> None:
        """Answer with `events`, which read `streams`."""
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events, or as many as the client waits for."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            for stream in self._streams:
                await stream.aclose()


class TimedOutError(Exception):
    """A request was given up at its deadline."""


async def timed(
    stream: AsyncStream, metrics: Metrics, chunks: asyncio.Queue[Any] | None = None, index: int = 0
) -> GenerationResult:
    """Read a stream to its end, and tell the metrics.

    Args:
        chunks: gets (index, chunk) of each.

    Raises:
        TimedOutError: its time was over before its end.
        SpecdecError: the request failed.
    """
    began, first, tokens = monotonic(), None, 0
    async for chunk in stream:
        if first is None and (chunk.text or chunk.token_ids):
            first = monotonic()
            metrics.first_token.observe(first - began)
        tokens += len(chunk.token_ids)
        if chunks is not None and not stream.timed_out:
            await chunks.put((index, chunk))
    ended, result = monotonic(), stream.result
    assert result is not None
    metrics.request.observe(ended - began)
    if first is not None and tokens > 1:
        metrics.between_tokens.observe((ended - first) / (tokens - 1))
    if result.stats.rounds:
        metrics.tokens_per_round.observe(result.stats.tokens_per_round)
    if stream.timed_out:
        raise TimedOutError(
            f"the request was given up after {ended - began:.1f} s, with {tokens} tokens; ask for "
            "fewer, or stream them"
        )
    return result


async def sse(
    body: GenerationRequest,
    answers: ChatAnswers | CompletionAnswers,
    streams: Sequence[AsyncStream],
    num_prompts: int,
    metrics: Metrics,
    decoder: BatchDecoder,
) -> AsyncIterator[bytes]:
    """Events of all choices as they arrive, ended by `[DONE]`; a client that leaves ends them."""
    codec = decoder.codec
    assert codec is not None
    chunks: asyncio.Queue[tuple[int, Chunk] | None] = asyncio.Queue()
    work = asyncio.gather(
        *(timed(stream, metrics, chunks, index) for index, stream in enumerate(streams))
    )

    def ended(work: asyncio.Future[Any]) -> None:
        if not work.cancelled():
            work.exception()  # looked at, so that nothing is printed when the client has left
        chunks.put_nowait(None)

    work.add_done_callback(ended)
    try:
        for index in range(len(streams)):
            opening = answers.first(index)
            if opening is not None:
                yield _event(opening)
        while (item := await chunks.get()) is not None:
            index, chunk = item
            document = answers.chunk(index, chunk)
            if body.specdec_details:
                document["choices"][0]["specdec"] = {"spans": spans(chunk, codec)}
            yield _event(document)
        try:
            results = await work
        except TimedOutError as error:
            yield _event(error_body(str(error), "timeout_error", "timeout"))
            return
        except SpecdecError as error:
            yield _event(error_body(str(error), "server_error", f"specdec_{error.code}"))
            return
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        if wants_usage or body.specdec_details:
            document = answers.last(results, num_prompts)
            if body.specdec_details:
                plain = decoder.plain_tokens_per_second
                document["specdec"] = [figures(result.stats, plain) for result in results]
            yield _event(document)
        yield b"data: [DONE]\n\n"
    finally:
        work.cancel()
        for stream in streams:
            await stream.aclose()


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"
