"""Call the tokenizer library where nothing it prints is seen, and turn its panics into errors.

`tokenizers` is Rust. A panic there writes lines to descriptor 2 and becomes a Python exception
that is no `Exception`, so no handler of a service catches it. Descriptor 2 belongs to the whole
process; to redirect it would swallow what other threads write. So the call runs in a thread with
a table of descriptors of its own (Linux: `close_range` with CLOSE_RANGE_UNSHARE), in which 0, 1
and 2 lead to /dev/null and nothing else is open. On systems without that the lines are seen.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from specdec.engines.errors import one_line

__all__ = ["TokenizerFault", "call_quietly", "guarded"]

T = TypeVar("T")

_UNSHARE = 2
"""CLOSE_RANGE_UNSHARE."""
_LAST = 0xFFFFFFFF


class TokenizerFault(Exception):  # noqa: N818  (never leaves `runtime.text`)
    """The library raised or panicked; the text is its own, in one line.

    Attributes:
        is_panic: it panicked: a fault of its file or of the library, not of the input.
    """

    def __init__(self, message: str, is_panic: bool) -> None:
        super().__init__(message)
        self.is_panic = is_panic


def guarded(call: Callable[[], T]) -> T:
    """Call the library here, in the caller's thread.

    Raises:
        TokenizerFault: whatever it raised, panics included.
    """
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        panicked = not isinstance(error, Exception)
        raise TokenizerFault(one_line(error), panicked) from error


def call_quietly(call: Callable[[], T]) -> T:
    """As `guarded`, in a thread whose output is seen nowhere; Ctrl-C does not wait for it."""
    done: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            _leave_descriptors()
            done.append(guarded(call))
        except BaseException as error:  # to be raised where it was asked for
            failed.append(error)

    thread = threading.Thread(target=work, name="specdec-tokenizer", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread is to be had: the lines of a panic would be seen
        return guarded(call)
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _leave_descriptors() -> None:
    """Give this thread a table of descriptors of its own that leads nowhere, where possible."""
    close_range = getattr(ctypes.CDLL(None, use_errno=True), "close_range", None)
    if close_range is None or close_range(3, ctypes.c_uint(_LAST), _UNSHARE) != 0:
        return
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)
