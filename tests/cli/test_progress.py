"""The displays of an export's steps."""

import io
import re

import pytest
from rich.console import Console

from specdec.cli.views.progress import LineProgress, LiveProgress, for_console


def lines() -> tuple[LineProgress, io.StringIO]:
    file = io.StringIO()
    progress = for_console(Console(file=file, width=40))
    assert isinstance(progress, LineProgress)
    return progress, file


def test_a_line_per_step() -> None:
    progress, file = lines()
    with progress.step("Exporting [target]", total=3) as step:
        assert file.getvalue() == "Exporting [target] ... "
        step.advance()
        step.advance(2)
    with progress.step("Checking a name that is longer than the console is wide"):
        pass
    assert re.fullmatch(
        r"Exporting \[target\] \.\.\. \d+\.\d s\n"
        r"Checking a name that is longer than the console is wide \.\.\. \d+\.\d s\n",
        file.getvalue(),
    )


def test_a_note_has_its_own_line() -> None:
    progress, file = lines()
    with progress.step("Measuring"):
        progress.note("two\nlines")
    progress.note("after")
    assert re.fullmatch(
        r"Measuring \.\.\. \nnote: two lines\n  \d+\.\d s\nnote: after\n", file.getvalue()
    )


def test_a_failed_step_ends_its_line() -> None:
    progress, file = lines()
    with pytest.raises(KeyboardInterrupt), progress.step("Quantizing"):
        raise KeyboardInterrupt
    assert file.getvalue() == "Quantizing ... stopped\n"


@pytest.mark.parametrize("total", [None, 4.0])
def test_a_terminal_gets_bars(total: float | None) -> None:
    file = io.StringIO()
    progress = for_console(Console(file=file, force_terminal=True, width=80, no_color=True))
    assert isinstance(progress, LiveProgress)
    with progress.step("export [x]", total=total) as step:
        step.advance(4)
        progress.note("large [model]")
    shown = file.getvalue()
    assert "export [x]" in shown
    assert "note: large [model]" in shown
    assert ("100%" in shown) == (total is not None)


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(for_console(console), LineProgress)
