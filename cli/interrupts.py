"""Ctrl-C while text is generated: the first asks to stop, the second ends at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """While entered, the first SIGINT calls `stop` instead of raising KeyboardInterrupt.

    A generation stopped that way keeps what it has; an exception in the middle of a pass
    would lose it. Enter it in the main thread only: Python delivers signals there.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self.requested = False
        self._stop = stop
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._stop()
