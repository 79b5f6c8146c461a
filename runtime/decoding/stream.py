"""`GenerationStream`: iterate over chunks, close to cancel, read the result at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.errors import BusyError
from specdec.runtime.turns import Turns

__all__ = ["GenerationStream"]

OnEnd = Callable[[GenerationResult, bool], None]

_WAIT_SECONDS = 0.0005


class GenerationStream(Closing, Iterator[Chunk]):
    """The chunks of one generation; the last one has a `finish_reason`.

    The decoder is busy until the stream ends, is closed, or is garbage-collected. `cancel` and
    `close` may be called from any thread at any moment; chunks are for one thread at a time.
    """

    def __init__(self, generation: Generation, on_end: OnEnd | None) -> None:
        """Wrap a generation.

        Args:
            on_end: called with the result and whether an error ended the generation; once, and
                again if it was interrupted; None when nobody wants to know.
        """
        self._generation = generation
        self._on_end = on_end
        self._result: GenerationResult | None = None
        self._turns = Turns()  # of making a chunk, or of writing down the end
        self._closing = False

    @property
    def result(self) -> GenerationResult | None:
        """The whole outcome once the stream has ended, else None."""
        return self._result

    @property
    def ended(self) -> bool:
        """Whether the stream has ended, and the decoder is free."""
        return self._result is not None

    def __iter__(self) -> GenerationStream:
        return self

    def __next__(self) -> Chunk:
        """The next chunk.

        Raises:
            BusyError: this very thread is making one, in a call that it has not left.
        """
        turn = _Turn()
        try:
            while not self._turns.take(turn):
                holder = self._turns.holder()
                if isinstance(holder, _Turn) and holder.thread == turn.thread:
                    raise BusyError("this thread is making a chunk of this stream already")
                time.sleep(_WAIT_SECONDS)
            chunk = self._next()
        finally:
            turn.ended = True
        if self._closing:  # asked for between the last look at the flag and the end of the turn
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
        turn = _Turn()
        try:
            if self._turns.take(turn):
                self._end(failed=False)
        finally:
            turn.ended = True

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
            result = self._generation.result()
            if self._on_end is not None:
                self._on_end(result, failed)
            self._result = result  # from here on the decoder is free


class _Turn:
    """One call that makes a chunk or ends the stream."""

    def __init__(self) -> None:
        self.ended = False
        self.thread = threading.get_ident()
