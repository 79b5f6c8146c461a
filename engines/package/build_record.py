"""Record of a TensorRT build (version, compute capabilities, profiles), checked at load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec.engines.package.fields import (
    FieldError,
    array_of,
    check_record,
    integer,
    matching,
    number,
    object_of_text,
)

__all__ = ["TensorRTEntry"]

_MAX_ROWS = 2**16
_VERSION = matching(r"\d+(\.\d+){1,3}", 'a version such as "1.7.1.116"')
_CAPABILITY = matching(r"\d{1,2}\.\d", 'a compute capability such as "8.9"')


@dataclass(frozen=True)
class TensorRTEntry:
    """The build of one engine.

    Raises:
        PackageError: a field has the wrong type or is out of range, or no profile takes one row.
    """

    version: str = field(metadata=_VERSION)
    """Of the TensorRT library that built the engine; no other is trusted to run it."""
    compute_capabilities: tuple[str, ...] = field(metadata=array_of(_CAPABILITY))
    """Of the GPUs it runs on, such as ("8.6", "8.9")."""
    profiles: tuple[tuple[int, int, int], ...] = field(
        metadata=array_of(array_of(integer(1, _MAX_ROWS)))
    )
    """Rows of a pass per optimisation profile: fewest, those it is tuned for, most."""
    scored_rows: tuple[int, ...] = field(metadata=array_of(integer(1, _MAX_ROWS)))
    """Most rows per profile whose logits one pass gives."""
    precisions: Mapping[str, str] = field(metadata=object_of_text())
    """Element types by group of layers, such as {"projections": "int4", "attention": "fp16"}."""
    build_seconds: float = field(metadata=number(0))

    def __post_init__(self) -> None:
        check_record(self)
        profiles: Any = tuple(tuple(profile) for profile in self.profiles)
        object.__setattr__(self, "profiles", profiles)
        for name in ("compute_capabilities", "scored_rows"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "precisions", dict(self.precisions))
        if not self.compute_capabilities:
            raise FieldError("compute_capabilities", "empty", "at least one")
        for index, profile in enumerate(profiles):
            if len(profile) != 3 or list(profile) != sorted(profile):
                allowed = "three ascending numbers of rows"
                raise FieldError(f"profiles[{index}]", f"{list(profile)}", allowed)
        if len(self.scored_rows) != len(profiles):
            allowed = f"one number for each of the {len(profiles)} profiles"
            raise FieldError("scored_rows", f"{list(self.scored_rows)}", allowed)
        for index, (scored, profile) in enumerate(zip(self.scored_rows, profiles, strict=True)):
            if scored > profile[2]:
                raise FieldError(f"scored_rows[{index}]", f"{scored}", f"1 .. {profile[2]}")
        if not any(profile[0] == 1 for profile in profiles):
            raise FieldError("profiles", f"{len(profiles)} profiles", "one that takes a single row")
