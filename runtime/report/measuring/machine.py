"""Describe this machine, and measure its memory bandwidth."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import numpy as np

from specdec.runtime.report.contents import Machine

__all__ = ["copy_bandwidth", "cpu_name", "describe_machine", "usable_cores"]

_COPIED = 128 * 2**20
_SMALLEST_SLICE = 4 * 2**20
_REPEATS = 5


def describe_machine(
    device: str, draft_device: str | None = None, num_threads: int | None = None
) -> Machine:
    """Describe the machine and measure its copy bandwidth, about 0.2 s.

    Args:
        device: where the target runs.
        draft_device: where the draft runs, None without one.
        num_threads: CPU threads of the engines, None for the backend's choice.
    """
    return Machine(
        cpu=cpu_name(),
        cores=usable_cores(),
        memory_bytes=_memory(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        onnxruntime=_onnxruntime_version(),
        device=device,
        draft_device=draft_device,
        num_threads=num_threads,
        copy_bytes_per_second=copy_bandwidth(),
    )


def copy_bandwidth() -> float:
    """Bytes per second of copying memory with all cores, read and written bytes counted."""
    cores = usable_cores()
    source = np.ones((cores, max(_COPIED // cores, _SMALLEST_SLICE)), np.uint8)
    target = np.zeros_like(source)  # both written once: every page exists

    def copy(row: int) -> None:
        np.copyto(target[row], source[row])

    with ThreadPoolExecutor(cores) as pool:
        best = min(_seconds(lambda: list(pool.map(copy, range(cores)))) for _ in range(_REPEATS))
    return 2.0 * source.nbytes / best


def usable_cores() -> int:
    """Logical CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """The processor's own name for itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _onnxruntime_version() -> str:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"
