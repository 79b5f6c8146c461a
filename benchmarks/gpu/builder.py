"""Builds the packages of the speed part, in a process beside the parity part.

    python -m gpu.builder WORK cpu|cuda tiny|real

A package appears in WORK under its name when it is whole; when it cannot be built, a file
NAME.failed says why. Nothing here uses the device, so it disturbs no figure of a GPU.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gpu.process import end, program, start
from gpu.ready import is_ready
from gpu.sections import OutOfTimeError, Recorder, Setup
from gpu.synthetic import package_name, sizes_of, write_synthetic

__all__ = ["BUILDING", "await_package", "build", "building"]

BUILDING = "building"
"""File in the work folder while the builder is busy."""
_ENDED = "builder.ended"
"""File in the work folder that says how the builder ended."""


@contextmanager
def building(setup: Setup) -> Iterator[None]:
    """Build the packages of the later sections meanwhile."""
    for left in (*setup.work.glob("*.failed"), setup.work / _ENDED):  # by an earlier run
        left.unlink(missing_ok=True)
    settings = [str(setup.work), setup.made_for, "tiny" if setup.tiny else "real"]
    (setup.work / BUILDING).touch()
    with start([*program("gpu.builder"), *settings], stdout=2) as child:
        watch = threading.Thread(target=_watch, args=(child, setup.work), daemon=True)
        watch.start()
        try:
            yield
        finally:
            end(child)
            watch.join()


def _watch(child: subprocess.Popen[Any], work: Path) -> None:
    """Note the end of the builder, so that nobody waits for what it will never build."""
    code = child.wait()
    _write(work / _ENDED, f"the builder ended with code {code}")
    (work / BUILDING).unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Write a file that is whole when it appears."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.rename(path)


def await_package(setup: Setup, recorder: Recorder, name: str) -> Path:
    """Wait for a package.

    Raises:
        RuntimeError: it could not be built, its builder is no more, or it is missing among those
            that were made before.
        OutOfTimeError: it is still being built when the section's time is over.
    """
    path = setup.work / name
    failed = path.with_name(f"{name}.failed")
    began = time.perf_counter()
    while True:
        if is_ready(setup) and not path.exists():
            raise RuntimeError(f"{name} is not among the packages")
        ended = (setup.work / _ENDED).exists()  # asked first: the package may come just before
        if path.exists():
            break
        if failed.exists():
            raise RuntimeError(f"{name} was not built: {failed.read_text()}")
        if ended:
            raise RuntimeError(f"{name} was not built: {(setup.work / _ENDED).read_text()}")
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
        build(work / package_name(size, precision), write)


def build(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make the directory `path`, or leave a file that says why it could not."""
    if path.exists():
        return
    began = time.perf_counter()
    part, failed = (path.with_name(f"{path.name}.{state}") for state in ("part", "failed"))
    shutil.rmtree(part, ignore_errors=True)  # of a run that was cut off
    failed.unlink(missing_ok=True)
    try:
        write(part)
    except Exception as error:  # told to whoever waits for it
        shutil.rmtree(part, ignore_errors=True)
        _write(failed, " ".join(f"{type(error).__name__}: {error}".split())[:300])
        return
    part.rename(path)
    seconds = time.perf_counter() - began
    print(f"  built {path.name} in {seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.nice(5)
    logging.disable(logging.INFO)
    build_all(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "tiny")
