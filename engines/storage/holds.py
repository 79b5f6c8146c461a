"""A lock on a file or directory that is being written: who finds one without it may remove it.

What a killed process leaves has a name of its own and nobody behind it. A process id in the name
does not tell: another process, or another container, may have the same. A `flock` does: the
kernel drops it with the process. File systems that have no such locks keep their leftovers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path

__all__ = ["hold", "is_held_by_none", "remove"]

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hold(path: Path) -> int | None:
    """Lock a file or directory of our own.

    Returns:
        The descriptor that holds it, to be closed at the end; None when something removed `path`
        before it was locked.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: then nothing is ever taken for left behind
            return descriptor
        if _is_at(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def is_held_by_none(path: Path) -> bool:
    """Whether a regular file or a directory, no link, was left by a process that is gone."""
    try:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return False
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:  # held, or no locks here
        return False
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a directory with all it holds, as far as the system lets; no link is
    followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink()
    except OSError:
        return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there, ours = path.lstat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
