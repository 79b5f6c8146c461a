"""Interface through which an export reports its steps; the command line draws them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "SilentProgress", "StepHandle"]


class StepHandle(Protocol):
    """A running step."""

    def advance(self, amount: float = 1) -> None:
        """Report `amount` more of the step's total as done."""
        ...


class Progress(Protocol):
    """Receives the steps of an export, one at a time, in order."""

    def step(self, name: str, total: float | None = None) -> AbstractContextManager[StepHandle]:
        """Enter a named step; `total` is its size in units of `advance`, None if unknown."""
        ...

    def note(self, message: str) -> None:
        """Tell the user one fact or warning that matters for the result."""
        ...


class SilentProgress:
    """Reports nothing."""

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[StepHandle]:
        """Run the step without a word."""
        yield self

    def advance(self, amount: float = 1) -> None:
        """Ignore the amount."""

    def note(self, message: str) -> None:
        """Ignore the message."""
