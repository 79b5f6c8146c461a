"""Weights on huge pages: where the kernel has them, and with their contents unchanged."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import numpy as np
import pytest

from specdec.engines.onnxruntime.huge_pages import _page_size, _without, on_huge_pages

MEBI = 1 << 20


def memory(size: int) -> np.ndarray:
    """Private memory of the process, filled. (NumPy asks for huge pages for its own.)"""
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(mapped, np.int64)
    array[:] = np.arange(array.shape[0])
    return array


def huge_bytes(array: np.ndarray) -> int:
    """Bytes of huge pages in the mappings that hold `array`."""
    start, total, inside = array.ctypes.data, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if found:
            low, high = int(found[1], 16), int(found[2], 16)
            inside = low < start + array.nbytes and high > start
        elif inside and line.startswith("AnonHugePages:"):
            total += 1024 * int(line.split()[1])
    return total


def collapses() -> bool:
    """Whether this kernel moves memory that is in use."""
    with on_huge_pages() as move:
        probe = memory(16 * MEBI)
    move.wait()
    return bool(_page_size()) and huge_bytes(probe) > 0


@pytest.mark.parametrize("wanted", [True, False])
def test_what_is_allocated_inside_moves(wanted: bool) -> None:
    if not collapses():
        pytest.skip("this kernel does not move memory to huge pages (MADV_COLLAPSE)")
    with on_huge_pages(wanted) as move:
        array = memory(64 * MEBI)
    move.wait()
    assert (huge_bytes(array) >= 56 * MEBI) == wanted
    np.testing.assert_array_equal(array, np.arange(array.shape[0]))


def test_what_was_there_before_stays() -> None:
    before = memory(32 * MEBI)
    with on_huge_pages() as move:
        inside = memory(32 * MEBI)
    move.wait()
    assert huge_bytes(before) <= huge_bytes(inside)
    np.testing.assert_array_equal(before, inside)


def test_without_huge_pages_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec.engines.onnxruntime.huge_pages._SIZE_FILE", Path("/nowhere"))
    monkeypatch.setattr("specdec.engines.onnxruntime.huge_pages._MAPS", Path("/nowhere"))
    with on_huge_pages():
        array = np.ones(8 * MEBI)
    assert array.sum() == 8 * MEBI


@pytest.mark.parametrize(
    ("ranges", "known", "left"),
    [
        ([(0, 10)], [], [(0, 10)]),
        ([(0, 10)], [(0, 10)], []),
        ([(0, 10)], [(2, 4), (6, 7)], [(0, 2), (4, 6), (7, 10)]),
        ([(5, 10), (20, 30)], [(0, 6), (25, 40)], [(6, 10), (20, 25)]),
        ([(5, 10)], [(0, 5), (10, 12)], [(5, 10)]),
    ],
)
def test_ranges_that_are_new(
    ranges: list[tuple[int, int]], known: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    assert _without(ranges, known) == left
