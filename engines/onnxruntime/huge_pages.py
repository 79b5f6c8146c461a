"""Put the weights of an engine on huge pages.

A pass over a model reads all of its weights once, page by page. With pages of 4 KiB the processor
needs more address translations than its TLB holds, and the misses, not the memory, limit the speed:
on a virtual machine, where a translation walks two page tables, pages of 2 MiB make a plain step a
fifth shorter. Linux gives them on request (`madvise`: MADV_HUGEPAGE, and MADV_COLLAPSE since 6.1
for memory in use). On other systems, or where they are disabled, nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["on_huge_pages"]

_SIZE_FILE = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MAPS = Path("/proc/self/maps")
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25
_QUIET_SECONDS = 0.3
_LOWEST_PRIORITY = 19
_LEAST_PAGES = 2
_PIECE = 32 << 20
"""Bytes moved by one call: the call holds the lock of the process's memory map."""

_Range = tuple[int, int]
"""First address, and the one after the last."""


class _Loads:
    """Counts loads in progress: memory is moved only when there are none, so no load is slowed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running, self._ended = 0, 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A load."""
        with self._changed:
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._ended = time.monotonic()
                self._changed.notify_all()

    def wait_for_quiet(self) -> None:
        """Wait until no load has been in progress for a moment."""
        with self._changed:
            while self._running or (left := self._ended + _QUIET_SECONDS - time.monotonic()) > 0:
                self._changed.wait(None if self._running else left)


_LOADS = _Loads()


@contextmanager
def on_huge_pages(wanted: bool = True) -> Iterator[Move]:
    """Move what is allocated inside, in large pieces, and is there at the end, to huge pages.

    Contents and addresses stay what they are, and the memory may be used meanwhile: the move goes
    on in the background, after the last of several loads, when the processor has nothing better to
    do.

    Args:
        wanted: False does nothing.

    Yields:
        The move, to wait for.
    """
    move = Move()
    size = _page_size() if wanted else 0
    before = _anonymous(_LEAST_PAGES * size) if size else []
    with _LOADS.one():
        yield move
    if size:
        move.begin(_without(_anonymous(_LEAST_PAGES * size), before), size)


class Move:
    """Memory on its way to huge pages."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self, ranges: Sequence[_Range], page: int) -> None:
        """Start the move; the kernel refuses ranges unmapped meanwhile, which is harmless."""
        self._thread = threading.Thread(
            target=_move, args=(ranges, page), name="specdec-huge-pages", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the move is done; returns at once when there is none."""
        if self._thread is not None:
            self._thread.join()


def _move(ranges: Sequence[_Range], page: int) -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)  # this thread's
    _LOADS.wait_for_quiet()
    for start, end in ranges:
        first, last = -(-start // page) * page, end // page * page
        for piece in range(first, last, _PIECE):
            _advise(piece, min(_PIECE, last - piece))


def _page_size() -> int:
    """Bytes of a huge page; 0 where the system has none."""
    try:
        return int(_SIZE_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _anonymous(least: int) -> list[_Range]:
    """This process's writable memory that belongs to no file, in pieces of at least `least`."""
    found = []
    for line in _MAPS.read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, rights, *rest = line.split(maxsplit=5)
        name = rest[3] if len(rest) > 3 else ""
        start, end = (int(address, 16) for address in addresses.split("-"))
        if rights.startswith("rw-p") and name in ("", "[heap]") and end - start >= least:
            found.append((start, end))
    return found


def _without(ranges: Sequence[_Range], known: Sequence[_Range]) -> list[_Range]:
    """The parts of `ranges` outside `known`; both ascending."""
    left = []
    for start, end in ranges:
        for first, last in known:
            if first < end and last > start:
                if start < first:
                    left.append((start, first))
                start = max(start, last)
        if start < end:
            left.append((start, end))
    return left


def _advise(start: int, size: int) -> None:
    """Ask for huge pages; a kernel that has none refuses, which is harmless."""
    library = ctypes.CDLL(None)
    for advice in (_MADV_HUGEPAGE, _MADV_COLLAPSE):
        library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), ctypes.c_int(advice))
