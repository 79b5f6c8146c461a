"""Write a file whole or not at all: whoever looks finds the old content or the new one.

    fresh name beside it (exclusive, no link followed) -> write -> fsync -> rename -> fsync folder

A kill at any point leaves the old file, and at most a part under a name of its own, which the
next write of the same file removes. A full disk leaves the old file and nothing else.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from specdec.engines.errors import OutputError
from specdec.engines.storage.holds import hold, is_held_by_none, remove

__all__ = [
    "check_output",
    "create_file",
    "fresh_folder",
    "fresh_name",
    "is_disk_full",
    "left_behind",
    "readable_size",
    "sync_folder",
    "sync_tree",
    "write_file",
]

_PART = "part"
_NAME_BYTES = 200
"""Of the 255 that a file name may have; the rest is for what makes it fresh."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_file(path: Path, content: str | bytes | memoryview, *, replaces: bool = True) -> None:
    """Write `path` in one step; an existing regular file is replaced and keeps its mode.

    Args:
        content: text is written as UTF-8, line breaks as they are.
        replaces: False is for a new file alone; one that is there already is an error.

    Raises:
        OutputError: `path` is a link or no regular file, or the system refuses; the message names
            the file and, when the disk is full, the sizes. The old file is as it was.
    """
    data = memoryview(content.encode("utf-8") if isinstance(content, str) else content).cast("B")
    check_output(path)
    try:
        for left in left_behind(path, _PART):
            remove(left)
        _write(path, data, replaces)
    except OSError as error:
        raise OutputError(_reason(path, len(data), error)) from error


def create_file(path: Path) -> BinaryIO:
    """Open a new file to be written piece by piece, in a folder that is renamed when it is whole.

    Raises:
        OSError: something of that name is there, a link included, or the system refuses.
    """
    return os.fdopen(os.open(path, _CREATE, 0o666), "wb")


def check_output(path: Path) -> None:
    """Refuse a place that `write_file` would, before the work whose result goes there.

    Raises:
        OutputError: `path` is a link or no regular file, or its directory is not there.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if path.absolute().parent.is_dir():
            return
        raise OutputError(
            f"{path} cannot be written: there is no directory {path.absolute().parent}; create "
            "it first"
        ) from None
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be written ({error}); check the path") from error
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "no regular file"
        raise OutputError(
            f"{path} is {kind}; allowed is a new name or a regular file: name the file itself"
        )


def fresh_name(path: Path, kind: str) -> Path:
    """A name beside `path` that nobody else has; `left_behind` finds it again."""
    return path.with_name(f"{_prefix(path, kind)}{secrets.token_hex(8)}")


def fresh_folder(path: Path, kind: str) -> tuple[Path, int]:
    """Make a directory under a fresh name beside `path`.

    Returns:
        The directory, and the descriptor that holds it, which the caller closes at the end.
    """
    while True:
        folder = fresh_name(path, kind)
        folder.mkdir()
        held = hold(folder)
        if held is not None:  # else another process took it for left behind
            return folder, held


def left_behind(path: Path, kind: str) -> list[Path]:
    """What processes that are gone left beside `path` under fresh names of this kind."""
    prefix = _prefix(path, kind)
    try:
        around = sorted(path.absolute().parent.iterdir())
    except OSError:
        return []
    return [one for one in around if one.name.startswith(prefix) and is_held_by_none(one)]


def sync_folder(folder: Path) -> None:
    """Bring the names in a directory to the disk, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Bring every regular file and directory below `folder` to the disk, `folder` last."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place, name)
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(Path(place))


def is_disk_full(error: BaseException) -> bool:
    """Whether this error, or a cause of it, is a full disk; some libraries say it in words."""
    found: BaseException | None = error
    while found is not None:
        if getattr(found, "errno", None) in _FULL or "No space left on device" in str(found):
            return True
        found = found.__cause__
    return False


def readable_size(count: float) -> str:
    """Bytes in the largest decimal unit that leaves 1 or more: "512 B", "1.5 kB", "3.0 GB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{int(count)} B"


def _prefix(path: Path, kind: str) -> str:
    name = path.name.encode("utf-8", "surrogateescape")[:_NAME_BYTES]
    return f".{os.fsdecode(name)}.{kind}-"


def _write(path: Path, rest: memoryview, replaces: bool) -> None:
    part, descriptor, held = fresh_name(path, _PART), None, None
    try:
        while held is None:
            descriptor = os.open(part, _CREATE, 0o666)
            held = hold(part)
            if held is None:  # another writer's cleaning was faster than our lock
                os.close(descriptor)
                descriptor, part = None, fresh_name(path, _PART)
        assert descriptor is not None
        if path.exists():
            os.fchmod(descriptor, stat.S_IMODE(path.lstat().st_mode))
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        if replaces:
            os.replace(part, path)  # noqa: PTH105  (beside the other calls of the system)
        else:
            os.link(part, path)  # which replaces nothing, whoever was faster
            part.unlink()
        sync_folder(path.absolute().parent)
    except BaseException:
        remove(part)
        raise
    finally:
        for number in (descriptor, held):
            if number is not None:
                os.close(number)


def _reason(path: Path, size: int, error: OSError) -> str:
    if isinstance(error, FileExistsError):
        return f"{path} is there already; name another file"
    if not is_disk_full(error):
        return f"{path} cannot be written ({error.strerror}); allowed is a writable directory"
    free = shutil.disk_usage(path.absolute().parent).free
    return (
        f"{path} cannot be written: the disk is full; it takes {readable_size(size)} and "
        f"{readable_size(free)} are free: free some, or name another place"
    )
