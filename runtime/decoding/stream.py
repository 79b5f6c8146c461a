"""`GenerationStream`: iterate over chunks, close to cancel, read the result at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.results import Chunk, GenerationResult

__all__ = ["GenerationStream"]

OnEnd = Callable[[GenerationResult, bool], None]


class GenerationStream(Closing, Iterator[Chunk]):
    """The chunks of one generation; the last one has a `finish_reason`.

    The decoder is busy until the stream ends, is closed, or is garbage-collected. `cancel` and
    `close` may be called from any thread at any moment; chunks are for one thread at a time.
    """

    def __init__(self, generation: Generation, on_end: OnEnd) -> None:
        """Wrap a generation.

        Args:
            on_end: called once with the result and whether an error ended the generation.
        """
        self._generation = generation
        self._on_end = on_end
        self._result: GenerationResult | None = None
        self._turn = threading.Lock()  # held while a chunk is made or the end is written down
        self._closing = False

    @property
    def result(self) -> GenerationResult | None:
        """The whole outcome once the stream has ended, else None."""
        return self._result

    def __iter__(self) -> GenerationStream:
        return self

    def __next__(self) -> Chunk:
        with self._turn:
            chunk = self._next()
        if self._closing:  # asked for between the last look at the flag and the release
            self.close()
        return chunk

    def drain(self) -> GenerationResult:
        """Run to the end and return the result."""
        for _ in self:
            pass
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Ask for an end after the round in progress; the last chunk then says "cancelled".

        May be called from any thread.
        """
        self._generation.cancel()

    def close(self) -> None:
        """End now; `result` then says "cancelled" unless the stream had ended. Idempotent.

        While another thread waits for a chunk this asks for an end, as `cancel` does: the
        chunk that thread gets is the last one, and the decoder is free when it has it.
        """
        self._closing = True
        self._generation.cancel()
        if self._turn.acquire(blocking=False):
            try:
                self._end(failed=False)
            finally:
                self._turn.release()

    def described(self) -> str:
        """Whether it is open, or how it ended."""
        if self._result is None:
            return "open"
        return f"{len(self._result.token_ids)} tokens, {self._result.finish_reason}"

    def __del__(self) -> None:
        if hasattr(self, "_closing"):
            self.close()

    def _next(self) -> Chunk:
        if self._result is not None:
            raise StopIteration
        try:
            chunk = self._generation.next_chunk()
        except BaseException as error:
            self._end(failed=isinstance(error, Exception))
            raise
        if chunk.finish_reason is not None:
            self._end(failed=False)
        return chunk

    def _end(self, failed: bool) -> None:
        if self._result is None:
            self._generation.stop()
            self._result = self._generation.result()
            self._on_end(self._result, failed)
