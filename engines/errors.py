"""Errors of the engine and package layer; `specdec.runtime.errors` draws the whole tree.

Every class has a stable integer `code` for embedders (C hosts see the number).
A message says what was got, what is allowed, and what to do, in one line.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ContextOverflowError",
    "DeviceError",
    "EngineError",
    "ForkedError",
    "MissingDependencyError",
    "NumericalError",
    "OutputError",
    "PackageError",
    "PackageIntegrityError",
    "PackageVersionError",
    "SpecdecError",
    "one_line",
]


class SpecdecError(Exception):
    """Root of every error this package raises on purpose."""

    code: ClassVar[int] = 1


class MissingDependencyError(SpecdecError):
    """An optional dependency is not installed; the message holds the pip line."""

    code = 2


class OutputError(SpecdecError):
    """A file cannot be written where it was asked for; what was there is as it was."""

    code = 3


class PackageError(SpecdecError):
    """A package directory cannot be used: missing, malformed, or unsafe."""

    code = 10


class PackageIntegrityError(PackageError):
    """A file of a package is missing, has the wrong size, or fails its checksum."""

    code = 11


class PackageVersionError(PackageError):
    """A package was written with a schema version this release does not read."""

    code = 12


class EngineError(SpecdecError):
    """The backend failed to load or to run an engine."""

    code = 20


class ContextOverflowError(EngineError):
    """A forward pass would write past the engine's `max_length`."""

    code = 21


class NumericalError(EngineError):
    """An engine produced NaN or infinite logits."""

    code = 22


class DeviceError(EngineError):
    """A device was asked for that is not available or not understood."""

    code = 23


class ForkedError(EngineError):
    """The engine was loaded by the process that this one was forked from."""

    code = 54


def one_line(error: BaseException, limit: int = 300) -> str:
    """The message of a backend's exception, white space collapsed, at most `limit` long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
