"""Errors of the export; each is one line a user can act on, and leaves no file behind."""

from __future__ import annotations

from specdec.engines.errors import SpecdecError

__all__ = [
    "EngineBuildError",
    "ExportCheckError",
    "ExportError",
    "ExportOptionError",
    "SourceError",
    "TokenizerMismatchError",
    "UnsupportedModelError",
]


class ExportError(SpecdecError):
    """A package could not be made."""

    code = 40


class ExportOptionError(ExportError, ValueError):
    """An export option has a value that is not allowed, alone or with the others."""

    code = 41


class SourceError(ExportError):
    """A model source cannot be found or read."""

    code = 42


class UnsupportedModelError(ExportError):
    """A model is not a decoder this release can export."""

    code = 43


class TokenizerMismatchError(ExportError):
    """Target and draft do not share one tokenizer."""

    code = 44


class ExportCheckError(ExportError):
    """The finished engines failed their checks; `--force` writes the package all the same."""

    code = 45


class EngineBuildError(ExportError):
    """TensorRT does not accept a graph or cannot build its engine."""

    code = 46
