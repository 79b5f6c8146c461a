"""Open and hash the files of a package: only regular ones, and only inside its directory.

A directory from elsewhere may hold a link that leads out of it, or a pipe on which `open` blocks.
So a path is resolved before it is used, and a file is opened without blocking and checked through
its descriptor, which cannot be exchanged afterwards.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from specdec.engines.errors import PackageError, PackageIntegrityError
from specdec.engines.package.entries import FileEntry

__all__ = [
    "MANIFEST_NAME",
    "hash_file",
    "hash_files",
    "inventory",
    "open_regular",
    "resolve_inside",
    "unreadable",
]

MANIFEST_NAME = "specdec.json"

_BLOCK = 1 << 20
_MAX_WORKERS = 4


def resolve_inside(root: Path, name: str) -> Path:
    """Follow every link of `root / name`; `root` is itself resolved.

    A hub's cache holds a package as a snapshot folder of links into the `blobs` folder beside
    `snapshots`, each to a file named by its checksum. Such a link is the one that is not
    followed: files find each other by the names in the snapshot.

    Raises:
        PackageIntegrityError: there is no such file.
        PackageError: it cannot be reached, or a link leads out of `root`.
    """
    try:
        path = Path(os.path.realpath(root / name, strict=True))
    except FileNotFoundError:
        raise PackageIntegrityError(
            f"{root / name} is missing; allowed is every file that {MANIFEST_NAME} lists; "
            "copy the package again"
        ) from None
    except OSError as error:
        raise unreadable(root / name, error) from error
    if root not in path.parents:
        if _is_hub_blob(root, name, path):
            return root / name
        raise PackageError(
            f"{root / name} is a link that leaves the package; "
            "allowed are links inside it, and those of a hub's cache to its blobs; copy the file "
            "in its place"
        )
    return path


def _is_hub_blob(root: Path, name: str, path: Path) -> bool:
    """Whether `root` is a snapshot of a hub's cache and the file at `path` one of its blobs."""
    if root.parent.name != "snapshots":
        return False
    folder = Path(os.path.realpath((root / name).parent))
    is_own = folder == root or root in folder.parents
    return is_own and path.parent == root.parents[1] / "blobs"


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; never blocks on a pipe or a device.

    Raises:
        PackageError: it is something else, or it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PackageError(
            f"{path} is not a regular file; allowed are regular files; copy the package again"
        )
    return os.fdopen(descriptor, "rb")


def unreadable(path: Path, error: OSError) -> PackageError:
    """Build the error for a path that the operating system refuses to read."""
    return PackageError(
        f"{path} cannot be read ({error.strerror}); allowed are readable regular files"
    )


def hash_file(path: Path) -> FileEntry:
    """Read a regular file once, a MiB at a time, and return its size and SHA-256.

    Raises:
        PackageError: it is not a regular file, or it cannot be read.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with open_regular(path) as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError as error:
        raise unreadable(path, error) from error
    return FileEntry(size, digest.hexdigest())


def hash_files(paths: Iterable[Path]) -> list[FileEntry]:
    """Hash several files in parallel (hashing releases the GIL), in the order given.

    Raises:
        PackageError: one of them is not a regular file, or it cannot be read.
    """
    workers = min(_MAX_WORKERS, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers, thread_name_prefix="specdec-hash") as pool:
        return list(pool.map(hash_file, paths))


def inventory(directory: Path) -> dict[str, FileEntry]:
    """Return the `files` section for a directory: every file in it but the manifest, sorted.

    Raises:
        PackageError: it holds a link or something that is neither file nor directory, or a
            file cannot be read.
    """
    paths = [path for path in sorted(directory.rglob("*")) if not _is_directory(path)]
    names = [path.relative_to(directory).as_posix() for path in paths]
    found = dict(zip(names, hash_files(paths), strict=True))
    found.pop(MANIFEST_NAME, None)
    return found


def _is_directory(path: Path) -> bool:
    if path.is_symlink():
        raise PackageError(
            f"{path} is a link; allowed are regular files and directories; copy the file itself"
        )
    return path.is_dir()
