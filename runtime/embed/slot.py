"""Admit one generation at a time to a decoder; cancel and close from any thread.

A decoder and its sessions share one slot. A cancellation counts from the moment a generation
has entered the slot, before its stream exists. Closing waits until the slot is free.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.errors import BusyError, ClosedError

__all__ = ["Slot"]


class Slot:
    """Guards the generations of one decoder; every method may be called from any thread."""

    def __init__(self, cancel_prompt: Callable[[], None] = lambda: None) -> None:
        """Make the slot of one decoder.

        Args:
            cancel_prompt: ends the making of a prompt, when there is no stream yet.
        """
        self._cancel_prompt = cancel_prompt
        self._running = threading.Lock()  # held while a generation runs, and for ever once closed
        self._state = threading.Lock()  # guards what follows
        self._closed = False
        self._owner = 0
        self._thread = 0
        self._cancelled = False
        self._stream: GenerationStream | None = None

    @contextmanager
    def entered(self, owner: int) -> Iterator[None]:
        """Hold the slot for the generation of the handle `owner`.

        Raises:
            BusyError: another generation holds it.
            ClosedError: the decoder was closed.
        """
        if not self._running.acquire(blocking=False):
            if self._closed:
                raise ClosedError("the decoder is closed; open the package again")
            raise BusyError(
                "a generation runs on this decoder; wait for it, cancel it, or use another decoder"
            )
        with self._state:
            self._owner, self._thread = owner, threading.get_ident()
            self._cancelled, self._stream = False, None
        try:
            yield
        finally:
            with self._state:
                self._owner, self._thread, self._stream = 0, 0, None
            self._running.release()

    def attach(self, stream: GenerationStream) -> None:
        """Name the stream that `cancel` ends; one cancelled before now ends at once."""
        with self._state:
            self._stream = stream
            if self._cancelled:
                stream.cancel()

    def cancel(self, owner: int | None = None) -> None:
        """Ask the running generation to end; with `owner`, only a generation of that handle."""
        with self._state:
            if self._owner and owner in (None, self._owner):
                self._cancelled = True
                if self._stream is not None:
                    self._stream.cancel()
                else:
                    self._cancel_prompt()

    def check_elsewhere(self) -> None:
        """Raise `BusyError` inside a callback of the running generation."""
        if self._thread == threading.get_ident():
            raise BusyError(
                "close was called in a callback of the generation it has to wait for; "
                "return non-zero from the callback and close afterwards"
            )

    def wait(self, owner: int) -> None:
        """Cancel the generation of one handle and wait for its end."""
        self.check_elsewhere()
        self.cancel(owner)
        if self._owner == owner:
            with self._running:
                pass

    def close(self) -> None:
        """Cancel, wait for the end, and refuse every later generation."""
        self.check_elsewhere()
        with self._state:
            self._closed = True
        self.cancel()
        self._running.acquire()
