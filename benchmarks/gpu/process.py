"""Run the sections in a process that may crash or hang without stopping the others.

The child writes {"begin": name, "seconds": s, "short": bool} before a section, {"so far": result}
whenever it has found something or gone on, and {"end": result} after it. When it ends in the
middle, or is silent for far longer than it said, the section has failed and a new child goes on
with the next. At the end of the time one that is still busy is stopped and skipped; one that is
silent has failed like any other, unless it had too little time to begin with.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu.sections import Check, Result

__all__ = ["end", "program", "run_sections", "start"]

_START_SECONDS = 120.0
_PATIENCE = 60.0
_OVERTIME = 20.0


_BENCHMARKS = Path(__file__).resolve().parents[1]


def program(module: str) -> list[str]:
    """The command that runs `module`, such as "gpu.plan", as a program from any directory."""
    code = f"import runpy, sys; sys.path.insert(0, {str(_BENCHMARKS)!r}); "
    return [sys.executable, "-c", code + f"runpy.run_module({module!r}, run_name='__main__')"]


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process that `end` can end together with those it starts."""
    return subprocess.Popen(command, start_new_session=True, **options)


def end(child: subprocess.Popen[Any]) -> None:
    """Kill a process of `start`, if it runs, and those it has started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


@dataclass(frozen=True)
class _Ending:
    """How a child ended that did not finish."""

    problem: str
    failed: bool = True
    unfinished: dict[str, Any] | None = None
    """What the section in progress had found."""


def run_sections(
    command: Callable[[list[str]], list[str]],
    names: Sequence[str],
    deadline: float,
    on_result: Callable[[Sequence[dict[str, Any]]], object] = lambda results: None,
) -> list[dict[str, Any]]:
    """Run all sections, in as many processes as it takes.

    Args:
        command: the process that runs the sections of these names.
        names: what to run, in order.
        deadline: of `time.monotonic`; a child that runs on for long after it is killed.
        on_result: called with all results so far after each section.

    Returns:
        A result for every name.
    """
    results: list[dict[str, Any]] = []
    while len(results) < len(names):
        remaining = list(names[len(results) :])
        ending = _follow(command(remaining), deadline, results, on_result)
        if len(results) < len(names):
            results.append(_stopped(names[len(results)], ending))
            on_result(results)
    return results


def _stopped(name: str, ending: _Ending | None) -> dict[str, Any]:
    """The result of a section that was not finished."""
    ending = ending or _Ending("its process ended early")
    result = ending.unfinished or Result(name).to_dict()
    result["notes"].append(ending.problem)
    if ending.failed:
        result["checks"].append(asdict(Check("runs to its end", False, ending.problem)))
    failed = any(not check["passed"] for check in result["checks"])
    result["status"] = "failed" if failed else "skipped"
    return result


def _follow(
    command: list[str],
    deadline: float,
    results: list[dict[str, Any]],
    on_result: Callable[[Sequence[dict[str, Any]]], object],
) -> _Ending | None:
    """Add a child's results; returns why it did not finish."""
    lines: queue.Queue[str | None] = queue.Queue()
    late = time.monotonic() > deadline
    with start(command, stdout=subprocess.PIPE, text=True) as child:
        reader = threading.Thread(target=_read, args=(child.stdout, lines), daemon=True)
        reader.start()
        allowed, patience, unfinished = _START_SECONDS, _PATIENCE, None
        try:
            while (line := lines.get(timeout=allowed)) is not None:
                event = json.loads(line)
                unfinished = event.get("so far")
                if "begin" in event:
                    late = event.get("short", False) or time.monotonic() > deadline
                    patience = 2.0 * event["seconds"] + _PATIENCE
                if "end" in event:
                    results.append(event["end"])
                    on_result(results)
                left = deadline + _OVERTIME - time.monotonic()
                if left < 0 and unfinished is not None:
                    end(child)
                    return _Ending("it was stopped: the time was over", False, unfinished)
                allowed = max(min(patience, left), _OVERTIME)
        except queue.Empty:
            end(child)
            late = late or (unfinished or {}).get("status") == "shortened"
            problem = f"it was stopped: no sign of life for {allowed:.0f} s"
            return _Ending(problem, not late, unfinished)
        except BaseException:  # whoever runs the check ends it
            end(child)
            raise
        finally:
            reader.join(timeout=1.0)
    if child.returncode:
        return _Ending(f"its process ended with code {child.returncode}", True, unfinished)
    return None


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
