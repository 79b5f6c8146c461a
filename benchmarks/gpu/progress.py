"""Report an export's progress, so that the section that runs it is not taken for hung."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpu.sections import Recorder

__all__ = ["Steps"]


class Steps:
    """A `specdec.export.Progress` that tells a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[Steps]:
        """Run a step and tell that it is over."""
        yield self
        self._recorder.alive()

    def advance(self, amount: float = 1) -> None:
        """Tell that a step goes on."""
        self._recorder.alive()

    def note(self, message: str) -> None:
        """Show the message."""
        self._recorder.say(f"  {message}")
