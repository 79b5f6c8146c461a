"""What rendering a chat template may cost: characters, steps, seconds; and a wish to stop.

A template is foreign code that runs inside a request. Characters are charged when a value is made
(before it, where one operation can make any size), steps when Python runs a line of the compiled
template or enters a function of Jinja2's, by a trace function of the rendering thread; so a wish to
cancel and the deadline are looked at even inside a filter's loop.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TypeVar

from specdec.runtime.errors import NotBegunError, PromptError

__all__ = ["Budget", "run_traced", "text_size"]

T = TypeVar("T")

_CHARACTERS = (4_000_000, 64)
"""Characters for any request, and for each character of its messages and tools."""
_STEPS = (2_000_000, 4)
"""The same of steps."""
_SECONDS = 30.0
_LOOK_EVERY = 256
"""Steps between two looks at the clock."""


class Budget:
    """The budget of one rendering; its methods raise when it is spent."""

    def __init__(self, size: int, cancelled: Callable[[], bool], seconds: float = _SECONDS) -> None:
        """Open a budget.

        Args:
            size: characters of what the template is given.
            cancelled: asked every few steps, in the rendering thread.
            seconds: most time it may take.
        """
        #: Characters that may still be made.
        self.left = self.most_characters = _CHARACTERS[0] + _CHARACTERS[1] * size
        self._steps = self.most_steps = _STEPS[0] + _STEPS[1] * size
        self._cancelled = cancelled
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def abandon(self) -> None:
        """Say that nobody waits any more; the rendering ends at its next look."""
        self._cancelled = lambda: True

    def charge(self, count: int) -> None:
        """Account for `count` characters that have been made.

        Raises:
            PromptError: more than the budget has.
        """
        self.check(count)
        self.left -= count

    def check(self, count: int) -> None:
        """Refuse what would make `count` characters, without making or charging them.

        Raises:
            PromptError: more than the budget has.
        """
        if count > self.left:
            raise PromptError(
                "the chat template was stopped: it makes more than "
                f"{self.most_characters} characters of these messages; shorten them, or use "
                "another template"
            )

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        """A trace function (`sys.settrace`): lines of the template, and calls of anything."""
        self._steps -= 1
        if self._steps < 0:
            raise PromptError(
                f"the chat template was stopped after {self.most_steps} steps; shorten the "
                "messages, or use another template"
            )
        if self._steps % _LOOK_EVERY == 0:
            self.look()
        # The template's own lines are followed; Jinja2's functions count once a call.
        return self.trace if frame.f_code.co_filename.startswith("<template") else None

    def look(self) -> None:
        """Look at the clock and at the wish to cancel.

        Raises:
            NotBegunError: it is wished.
            PromptError: the time is over.
        """
        if self._cancelled():
            raise NotBegunError(
                "cancelled, or out of time, while the chat template was rendered; nothing was "
                "generated"
            )
        if time.monotonic() > self._deadline:
            raise PromptError(
                f"the chat template was stopped after {self._seconds:g} s; shorten the messages, "
                "or use another template"
            )


def run_traced(work: Callable[[], T], budget: Budget) -> T:
    """Run `work` in a thread of its own whose steps `budget` counts; Ctrl-C ends it too."""
    done: list[T] = []
    failed: list[BaseException] = []

    def traced() -> None:
        sys.settrace(budget.trace)
        try:
            done.append(work())
        except BaseException as error:  # to be raised where it was asked for
            failed.append(error)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=traced, name="specdec-template", daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        budget.abandon()
        raise
    if failed:
        raise failed[0]
    return done[0]


def text_size(value: Any, depth: int = 0) -> int:
    """Characters of all texts in a tree of mappings and lists, one more for each other item."""
    if isinstance(value, str):
        return len(value)
    if depth > 100:
        raise PromptError("messages or tools nest deeper than 100 levels; allowed are 100")
    if isinstance(value, Mapping):
        return sum(text_size(one, depth + 1) for pair in value.items() for one in pair)
    if isinstance(value, (list, tuple)):
        return sum(text_size(item, depth + 1) for item in value) + len(value)
    return 1
