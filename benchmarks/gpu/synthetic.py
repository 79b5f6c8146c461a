"""Targets and drafts of real sizes with random weights, for the speed part.

Two layers are made and the rest repeats the second one, see `specdec.export.simulate.package`: on
disk they share one place, on the device each has its own, so that a pass reads what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpu.adapter import export_options

__all__ = ["Sizes", "package_name", "sizes_of", "write_synthetic"]


@dataclass(frozen=True)
class Sizes:
    """What is built."""

    targets: tuple[str, str]
    draft: str
    max_length: int
    precisions: tuple[str, ...] = ("int8", "int4")
    """Of the draft."""


_REAL = Sizes(targets=("1.5B", "7B"), draft="0.5B", max_length=1024)
_TINY = Sizes(targets=("4M", "6M"), draft="1M", max_length=256)


def sizes_of(tiny: bool) -> Sizes:
    """Real sizes, or those of a test."""
    return _TINY if tiny else _REAL


def package_name(size: str, precision: str) -> str:
    """Folder of a model."""
    return f"simulated-{size}-{precision}"


def write_synthetic(kind: str, size: str, precision: str, max_length: int, path: Path) -> None:
    """Write one model as a package without a draft.

    Args:
        kind: what it is made for, "cpu" or "cuda".
        size: such as "1.5B".
        precision: of its weights.
        max_length: context in tokens.
        path: a directory to make.
    """
    from specdec.export import SilentProgress, SimulatedPair, write_simulated_package

    path.mkdir()
    pair = SimulatedPair(
        target=size,
        draft="none",
        target_precision=precision,
        max_length=max_length,
        **export_options(kind),
    )
    write_simulated_package(pair, path, SilentProgress())
