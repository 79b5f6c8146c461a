"""What a fork leaves of engines: nothing that runs, so a child is told and ends cleanly.

A fork copies memory but one thread only. An engine's thread pool is gone in the child: a pass, the
destructor of a session, and those that ONNX Runtime registers for the process's exit would wait
for it forever. So whatever holds engines asks `check_same_process` first; sessions registered with
`outlive_forks` are never destroyed in a child; and a child that exits flushes its streams and ends
there, as with the C library.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from specdec.engines.errors import ForkedError

__all__ = ["check_same_process", "forked_since", "outlive_forks"]

_started: set[str] = set()
"""Not empty once a session was made: even when all are gone, ONNX Runtime's own state is there."""
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def forked_since(process: int) -> bool:
    """Whether this process is a fork of the one with id `process`."""
    return os.getpid() != process


def check_same_process(process: int) -> None:
    """Refuse to go on in a fork.

    Args:
        process: id of the process that made the engine.

    Raises:
        ForkedError: it is another process than this one.
    """
    if forked_since(process):
        raise ForkedError(
            "this process was forked after the package had been loaded, and engines do not survive "
            "a fork; fork before loading, or start a new program (multiprocessing: the 'spawn' "
            "method)"
        )


def outlive_forks(session: Any) -> None:
    """Keep `session` from being destroyed in a child of this process, whatever forgets it."""
    _sessions.add(session)
    _started.add("onnxruntime")


def _prepare_child() -> None:
    for session in list(_sessions):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))
    if _started:
        _skip_exit_handlers()


def _skip_exit_handlers() -> None:
    """Let `exit` flush C's streams and end the process, before all handlers registered so far.

    Handlers run in reverse order: first `fflush(NULL)`, then `_exit(status)`. Both are C functions
    that C calls itself: Python is gone by then, its streams flushed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # of glibc
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


if hasattr(os, "register_at_fork"):  # systems without fork have no such function
    os.register_at_fork(after_in_child=_prepare_child)
