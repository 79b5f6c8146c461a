"""Raise KeyboardInterrupt at the first bytecode of chosen modules, at the second, ... the last."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

MODULES = ("runtime/decoder.py", "decoding/stream.py", "decoding/session.py", "runtime/turns.py")
"""Where the turns of a decoder and of a stream are taken and given back."""


def interrupt_everywhere(
    prepare: Callable[[], Any], action: Callable[[Any], Any], check: Callable[[Any, int], None]
) -> int:
    """Return how many bytecodes the action has in those modules; each was interrupted once.

    Args:
        prepare: makes what `action` and `check` are called with, anew each time.
        check: called with it and the number of the bytecode, when the interrupt has been handled.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None  # an interrupt in a `__del__` is reported there
    before = sys.gettrace()
    moment = 0
    try:
        while True:
            moment += 1
            subject = prepare()
            struck = _run(lambda subject=subject: action(subject), moment)  # type: ignore[misc]
            check(subject, moment)
            if not struck:
                return moment - 1
    finally:
        sys.unraisablehook = hook
        sys.settrace(before)


def _run(action: Callable[[], Any], moment: int) -> bool:
    """Run and interrupt at one bytecode; whether the action came that far."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
            if count == moment:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return count >= moment
