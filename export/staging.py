"""Write a package beside its destination and rename it into place when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["staged"]


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A scratch directory that becomes `out` if the block ends well, and vanishes if not.

    An existing package at `out` is replaced only at the very end. What a killed export left
    behind is removed by the next export of the same name.
    """
    out = out.absolute()
    _remove_abandoned(out)
    scratch = out.with_name(f".{out.name}.partial-{os.getpid()}")
    scratch.mkdir()
    try:
        yield scratch
        _replace(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replace(scratch: Path, out: Path) -> None:
    if not out.exists():
        scratch.rename(out)
        return
    old = out.with_name(f".{out.name}.replaced-{os.getpid()}")
    out.rename(old)
    try:
        scratch.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_abandoned(out: Path) -> None:
    for path in out.parent.glob(f".{out.name}.partial-*"):
        process = path.name.rpartition("-")[2]
        if process.isdigit() and not _alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
