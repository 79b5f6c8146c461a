"""Write a package beside its destination and put it in its place when it is complete.

    .NAME.partial-<fresh>  --exchange-->  NAME       (the old package is then under .NAME.partial-)
    NAME -> .NAME.replaced-<fresh>, .NAME.partial-<fresh> -> NAME   (systems without an exchange)

A kill at any point leaves the old package or the new one under NAME; between the two renames of
the second way neither, until the next export of that name puts the old one back. Both kinds of
directories are locked while their export lives, so the next one tells what is left behind.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec.engines.package.files import MANIFEST_NAME
from specdec.engines.storage.holds import hold, remove
from specdec.engines.storage.renames import exchange
from specdec.engines.storage.writing import (
    fresh_folder,
    fresh_name,
    is_disk_full,
    left_behind,
    readable_size,
    sync_folder,
    sync_tree,
)
from specdec.export.errors import ExportError, ExportOptionError

__all__ = ["check_destination", "staged"]

_PARTIAL, _REPLACED = "partial", "replaced"
_OCCUPIED = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


@contextmanager
def staged(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A scratch directory that becomes `out` if the block ends well, and vanishes if not.

    Args:
        overwrite: replace a package at `out`, at the very end and in one step where the system
            can. Without it nothing but an empty directory is ever replaced.

    Raises:
        ExportError: the disk is full, or something appeared at `out` meanwhile; it stays.
    """
    out = out.absolute()
    _recover(out)
    scratch, held = fresh_folder(out, _PARTIAL)
    try:
        yield scratch
        sync_tree(scratch)
        _put_in_place(scratch, out, overwrite)
    except Exception as error:
        if is_disk_full(error):
            raise ExportError(_disk_full(scratch, out)) from error
        raise
    finally:
        remove(scratch)
        os.close(held)


def check_destination(out: Path, *, overwrite: bool) -> None:
    """Refuse a place where a package may not go.

    Raises:
        ExportOptionError: it is a link or a file, holds something that is no package, or holds a
            package and `overwrite` is not set.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ExportOptionError(f"{out} exists and is not a directory; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / MANIFEST_NAME).is_file():
        raise ExportOptionError(f"{out} exists and is not a specdec package; choose another --out")
    if not overwrite:
        raise ExportOptionError(
            f"{out} holds a package already; choose another --out or pass --overwrite"
        )


def _put_in_place(scratch: Path, out: Path, overwrite: bool) -> None:
    check_destination(out, overwrite=overwrite)
    if overwrite and out.exists():
        if not exchange(scratch, out):
            _replace(scratch, out)
    else:
        try:
            # A directory renamed so replaces nothing but an empty directory.
            scratch.rename(out)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            raise ExportError(
                f"{out} was made by something else while the export ran and is left as it is; "
                "choose another --out"
            ) from error
    sync_folder(out.parent)


def _replace(scratch: Path, out: Path) -> None:
    """Replace in two renames; `_recover` repairs what a kill between them leaves."""
    held = hold(out)
    try:
        old = fresh_name(out, _REPLACED)
        try:
            out.rename(old)
            scratch.rename(out)
        except BaseException:
            if not out.exists() and old.exists():
                old.rename(out)
            raise
        sync_folder(out.parent)
        remove(old)
    finally:
        if held is not None:
            os.close(held)


def _recover(out: Path) -> None:
    """Put back or remove what exports of this name left that were killed."""
    for old in left_behind(out, _REPLACED):
        if out.exists() or out.is_symlink():
            remove(old)
        else:
            old.rename(out)
    for scratch in left_behind(out, _PARTIAL):
        remove(scratch)


def _disk_full(scratch: Path, out: Path) -> str:
    written = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
    free = shutil.disk_usage(out.parent).free
    return (
        f"the disk of {out} is full: the export had written {readable_size(written)}, "
        f"{readable_size(free)} were free then; free some or choose another --out"
    )
