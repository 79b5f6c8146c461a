"""Sections of the GPU check: their results, and their shares of a time budget.

A section asks its recorder how many seconds it has left and does less when there are few. Time
that one section leaves over goes to those after it.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

__all__ = [
    "Check",
    "NotHereError",
    "OutOfTimeError",
    "Recorder",
    "Result",
    "Section",
    "Setup",
    "Steps",
    "allotted",
    "play",
]


@dataclass(frozen=True)
class Setup:
    """What every section is told."""

    device: str
    """Where the engines under test run: "cpu" or "cuda:N"."""
    made_for: str
    """The kind of device that their packages are made for: "cpu" or "cuda"."""
    tiny: bool
    """Sizes that a slow CPU manages in seconds."""
    work: Path
    """Packages are built here."""

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU is under test."""
        return self.device != "cpu"


@dataclass(frozen=True)
class Check:
    """Something that must hold."""

    name: str
    passed: bool
    detail: str


@dataclass
class Result:
    """What a section found; plain data."""

    name: str
    status: str = "done"
    """"done", "shortened", "skipped" or "failed"."""
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        data: dict[str, Any] = asdict(self)
        return data


class OutOfTimeError(Exception):
    """A section cannot go on, for want of time alone."""


class NotHereError(Exception):
    """A section needs more than this machine has."""


class Recorder:
    """Receives what a section finds."""

    def __init__(
        self,
        name: str,
        seconds: float,
        say: Callable[[str], None],
        on_change: Callable[[Result], None],
    ) -> None:
        """`seconds` is how long the section may take; `say` shows a line of progress."""
        self.result = Result(name)
        self._on_change = on_change
        self._end = perf_counter() + seconds
        self.say = say

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self._end - perf_counter()

    def alive(self) -> None:
        """Tell whoever watches that the section goes on."""
        self._on_change(self.result)

    def check(self, name: str, passed: bool, detail: str = "") -> None:
        """Note whether something holds that must."""
        self.result.checks.append(Check(name, bool(passed), detail))
        self.say(f"  {'ok    ' if passed else 'FAILED'} {name}{': ' if detail else ''}{detail}")
        self._on_change(self.result)

    def figure(self, name: str, value: Any) -> None:
        """Note a figure: numbers, text, lists and dictionaries of them.

        What is not finite becomes null, and is a failed check.
        """
        finite = _finite(value)
        if finite != value:
            self.check(f"{name} is finite", False, str(value)[:200])
        self.result.figures[name] = finite
        self._on_change(self.result)

    def note(self, text: str) -> None:
        """Note something that a reader should know."""
        self.result.notes.append(text)
        self.say(f"  {text}")

    def shorten(self, text: str) -> None:
        """Note that something was left out for want of time."""
        self.result.status = "shortened"
        self.note(f"no time for {text}")


class Steps:
    """A `specdec.export.Progress` that tells a recorder, lest an export be taken for hung."""

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


def _finite(value: Any) -> Any:
    """`value` with null for every number that JSON has no form for."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_finite(item) for item in value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Section:
    """A part of the check."""

    name: str
    seconds: float
    """Its share of the budget, in seconds of the usual 8 minutes."""
    least: float
    """With less than this it is skipped."""
    run: Callable[[Setup, Recorder], None]


def allotted(sections: Sequence[Section], left: float) -> float:
    """Seconds for the first of the sections that remain, when `left` remain for all."""
    share = sections[0].seconds / sum(section.seconds for section in sections)
    return max(left * share, min(sections[0].least, left))


def play(
    section: Section,
    setup: Setup,
    seconds: float,
    say: Callable[[str], None],
    on_change: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Run a section; what it raises becomes a failed check of its result.

    `on_change` receives the unfinished result after every check and figure.
    """
    if seconds < section.least:
        note = f"needs {section.least:.0f} s, and {max(seconds, 0.0):.0f} s are left"
        return Result(section.name, "skipped", notes=[note])
    began = perf_counter()
    recorder = Recorder(section.name, seconds, say, on_change)
    try:
        section.run(setup, recorder)
    except (OutOfTimeError, NotHereError) as error:
        recorder.result.status = "skipped"
        recorder.note(str(error))
    except Exception as error:
        say(traceback.format_exc())
        message = " ".join(str(error).split())[:300]
        recorder.check("runs to its end", False, f"{type(error).__name__}: {message}")
    if any(not check.passed for check in recorder.result.checks):
        recorder.result.status = "failed"
    recorder.result.seconds = perf_counter() - began
    return recorder.result
