"""The one stream a decoder may have open: opened, cancelled and closed from any thread."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.errors import BusyError

__all__ = ["SingleStream"]


class SingleStream:
    """Holds a lock from the opening of a stream to its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active: weakref.ref[GenerationStream] | None = None

    def open(
        self,
        generation: Generation,
        check_open: Callable[[], None],
        on_end: Callable[[GenerationResult, bool], None] | None,
    ) -> GenerationStream:
        """Open the stream of a generation.

        Args:
            check_open: raises when the decoder was closed meanwhile.
            on_end: gets the result and whether the generation failed.

        Raises:
            BusyError: another stream is open.
        """
        self._acquire()
        try:
            check_open()  # again: by another thread, since the first look
        except BaseException:
            self._lock.release()
            raise

        def end(result: GenerationResult, failed: bool) -> None:
            try:
                if on_end is not None:
                    on_end(result, failed)
            finally:
                self._active = None
                self._lock.release()

        stream = GenerationStream(generation, end)
        self._active = weakref.ref(stream)
        return stream

    def cancel(self) -> None:
        """End the open generation, if any, after its present round."""
        stream = self._stream()
        if stream is not None:
            stream.cancel()

    def close(self, mark_closed: Callable[[], None]) -> None:
        """Close the open stream, if any, and call `mark_closed` before another can be opened.

        Raises:
            BusyError: another thread is inside a generation; it was asked to end.
        """
        stream = self._stream()
        if stream is not None:
            stream.close()
        self._acquire()
        mark_closed()
        self._lock.release()

    def _stream(self) -> GenerationStream | None:
        active = self._active
        return None if active is None else active()

    def _acquire(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise BusyError(
                "a generation is open on this decoder; finish or close its stream first"
            )
