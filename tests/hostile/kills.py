"""Run an action again and again, killed at its first file operation, its second, ... its last.

A process of its own, with one thread, forks for each kill; the child counts every call of the
system that touches files and ends by SIGKILL just before (`before`) or just after it. The parent
calls `check` after each. Usage: `kill_everywhere(prepare, action, check)` in a script run by
`python -c`; `tests.hostile.injector.run` does that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

OPERATIONS = (
    *("open", "write", "fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "fchmod"),
    *("link", "symlink", "truncate", "ftruncate"),
)


def kill_everywhere(
    prepare: Callable[[], Any], action: Callable[[], Any], check: Callable[[int], Any]
) -> int:
    """Return how many operations the action has; each was the last of one child."""
    moment = 0
    while True:
        moment += 1
        prepare()
        child = os.fork()
        if child == 0:
            try:
                _arm(lambda count, now=moment: count == now, _kill)
                action()
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check(moment)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"the action failed at {moment}"
            return moment - 1


def fail_everywhere(
    prepare: Callable[[], Any],
    action: Callable[[], Any],
    check: Callable[[int, BaseException | None], Any],
    error: Callable[[], BaseException],
    operations: tuple[str, ...] = ("write", "fsync"),
) -> int:
    """The same in one process, with an error at the operation instead of a kill."""
    moment = 0
    while True:
        moment += 1
        prepare()
        reached = False

        def hit(count: int, now: int = moment) -> bool:
            nonlocal reached
            reached = reached or count == now
            return count == now

        def strike() -> None:
            raise error()

        restore = _arm(hit, strike, operations)
        caught: BaseException | None = None
        try:
            action()
        except BaseException as problem:
            caught = problem
        finally:
            restore()
        check(moment, caught)
        if not reached:
            assert caught is None
            return moment - 1


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(
    hit: Callable[[int], bool],
    strike: Callable[[], None],
    operations: tuple[str, ...] = OPERATIONS,
) -> Callable[[], None]:
    """Wrap the calls of `os`; returns what puts them back."""
    count = 0
    kept: list[tuple[Any, str, Any]] = []

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if hit(count):
                strike()
            return function(*arguments, **named)

        return call

    from specdec.engines.storage import renames

    for name in operations:
        kept.append((os, name, getattr(os, name)))
    if "rename" in operations:
        kept.append((renames, "system_exchange", renames.system_exchange))
    for owner, name, function in kept:
        setattr(owner, name, wrapped(function))

    def restore() -> None:
        for owner, name, function in kept:
            setattr(owner, name, function)

    return restore
