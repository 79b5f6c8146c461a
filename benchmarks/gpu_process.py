"""Run the sections in a process that may crash or hang without stopping the others.

The child writes {"begin": name, "seconds": s} before a section, {"so far": result} whenever it has
found something, and {"end": result} after it. When
it ends in the middle, or takes far longer than it said, the section has failed and a new child
goes on with the next.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from gpu_sections import Check, Result

__all__ = ["run_sections"]

_START_SECONDS = 120.0
_PATIENCE = 60.0
_OVERTIME = 20.0
_KILLED = "it was stopped"


def run_sections(
    command: Callable[[list[str]], list[str]],
    names: Sequence[str],
    deadline: float,
    on_result: Callable[[Sequence[dict[str, Any]]], None] = lambda results: None,
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
        problem, unfinished = _follow(command(remaining), deadline, results, on_result)
        if len(results) < len(names):
            result = unfinished or Result(names[len(results)]).to_dict()
            _stop(result, problem or "its process ended early", deadline)
            results.append(result)
            on_result(results)
    return results


def _stop(result: dict[str, Any], problem: str, deadline: float) -> None:
    """A crash has failed, and so has what hangs; what the end of the time cut off has not."""
    result["notes"].append(problem)
    failed = any(not check["passed"] for check in result["checks"])
    if problem.startswith(_KILLED) and time.monotonic() > deadline and not failed:
        result["status"] = "skipped"
    else:
        result["status"] = "failed"
        result["checks"].append(asdict(Check("runs to its end", False, problem)))


def _follow(
    command: list[str],
    deadline: float,
    results: list[dict[str, Any]],
    on_result: Callable[[Sequence[dict[str, Any]]], None],
) -> tuple[str | None, dict[str, Any] | None]:
    """Add a child's results; returns why it did not finish, and what it had found by then."""
    lines: queue.Queue[str | None] = queue.Queue()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        reader = threading.Thread(target=_read, args=(child.stdout, lines), daemon=True)
        reader.start()
        allowed, patience, unfinished = _START_SECONDS, _PATIENCE, None
        try:
            while (line := lines.get(timeout=allowed)) is not None:
                event = json.loads(line)
                unfinished = event.get("so far")
                if "begin" in event:
                    patience = 2.0 * event["seconds"] + _PATIENCE
                if "end" in event:
                    results.append(event["end"])
                    on_result(results)
                left = deadline + _OVERTIME - time.monotonic()
                if left < 0 and unfinished is not None:
                    child.kill()
                    return f"{_KILLED}: the time was over", unfinished
                allowed = max(min(patience, left), _OVERTIME)
        except queue.Empty:
            child.kill()
            return f"{_KILLED}: no sign of life for {allowed:.0f} s", unfinished
        finally:
            reader.join(timeout=1.0)
    if child.returncode:
        return f"its process ended with code {child.returncode}", unfinished
    return None, None


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
