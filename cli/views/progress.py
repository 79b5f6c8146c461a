"""Draws the steps of an export on stderr: live bars on a terminal, else one line a step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from specdec.cli.common import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["LineProgress", "LiveProgress", "for_console"]


def for_console(console: Console) -> LiveProgress | LineProgress:
    """Return the display that fits the console."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console)
    return LineProgress(console)


class LiveProgress:
    """A bar per step with the elapsed and, where the total is known, the remaining time."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[_Bar]:
        """Show a step while it runs; its finished line stays."""
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        name_column = TextColumn("{task.description}", markup=False)
        columns = [name_column, BarColumn(), TimeElapsedColumn()]
        if total is not None:
            columns += [TaskProgressColumn(), TextColumn("left"), TimeRemainingColumn()]
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(name, total=total)
            yield _Bar(progress, task)
            done = total if total is not None else 1
            progress.update(task, total=done, completed=done)

    def note(self, message: str) -> None:
        """Print a line above the running bar."""
        self._console.print(
            f"note: {one_line(message)}", markup=False, highlight=False, soft_wrap=True
        )


class _Bar:
    """A running step of `LiveProgress`."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, amount: float = 1) -> None:
        """Move the bar."""
        self._progress.advance(self._task, amount)


class LineProgress:
    """One line per step: the name when it starts, the seconds it took when it ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._open = False  # a line without its end

    @contextmanager
    def step(self, name: str, total: float | None = None) -> Iterator[_Line]:
        """Write the step's name now and its time at the end."""
        start = time.perf_counter()
        try:  # Ctrl-C may come as soon as the name is on the screen
            self._open = True
            self._write(f"{one_line(name)} ... ", end="")
            yield _Line()
        except BaseException:
            self._end_line("stopped")
            raise
        self._end_line(f"{time.perf_counter() - start:.1f} s")

    def note(self, message: str) -> None:
        """Print a line of its own."""
        if self._open:
            self._write("")
            self._open = False
        self._write(f"note: {one_line(message)}")

    def _end_line(self, text: str) -> None:
        self._write(text if self._open else f"  {text}")
        self._open = False

    def _write(self, text: str, end: str = "\n") -> None:
        # Not `console.print`: it wraps, and drops a last space, at the width of a screen.
        self._console.file.write(text + end)
        self._console.file.flush()


class _Line:
    """A running step of `LineProgress`."""

    def advance(self, amount: float = 1) -> None:
        """Show nothing: only starts and ends are lines."""
