"""Every error this package raises on purpose, with a stable integer `code` for embedders.

    SpecdecError                       1
    +-- MissingDependencyError         2   an optional dependency is not installed
    +-- OutputError                    3   a file cannot be written; the old one is as it was
    +-- PackageError                  10   a package directory cannot be used
    |   +-- PackageIntegrityError     11   missing file, wrong size, wrong checksum
    |   +-- PackageVersionError       12   schema version this release does not read
    +-- EngineError                   20   a backend failed to load or to run
    |   +-- ContextOverflowError      21   a pass would write past `max_length`
    |   +-- NumericalError            22   NaN or infinite logits
    |   +-- DeviceError               23   a device that is absent or not understood
    |   +-- ForkedError               54   loaded by the process this one was forked from
    +-- InvalidParameterError         30   a sampling parameter has an illegal value
    |   +-- UnsupportedOptionError    31   an option that does not exist or cannot be honoured
    +-- PromptError                   32   the prompt is empty, too long, or not understood
    +-- BusyError                     33   a second generation while one is open
    +-- NoTokenLeftError              34   the caller's own bans leave no token to choose
    +-- ClosedError                   35   the decoder or session is closed
    +-- NotBegunError                36   cancelled before the generation began

`InvalidParameterError` and `PromptError` are also `ValueError`. Codes from 49 on belong to the
border to a host: `specdec.runtime.embed.errors`.
"""

from __future__ import annotations

from specdec.engines.errors import (
    ContextOverflowError,
    DeviceError,
    EngineError,
    ForkedError,
    MissingDependencyError,
    NumericalError,
    OutputError,
    PackageError,
    PackageIntegrityError,
    PackageVersionError,
    SpecdecError,
)

__all__ = [
    "BusyError",
    "ClosedError",
    "ContextOverflowError",
    "DeviceError",
    "EngineError",
    "ForkedError",
    "InvalidParameterError",
    "MissingDependencyError",
    "NoTokenLeftError",
    "NotBegunError",
    "NumericalError",
    "OutputError",
    "PackageError",
    "PackageIntegrityError",
    "PackageVersionError",
    "PromptError",
    "SpecdecError",
    "UnsupportedOptionError",
]


class InvalidParameterError(SpecdecError, ValueError):
    """A parameter has an illegal type or value; the message says what is allowed."""

    code = 30


class UnsupportedOptionError(InvalidParameterError):
    """An option does not exist, or this decoder cannot honour it; it is never ignored."""

    code = 31


class PromptError(SpecdecError, ValueError):
    """The prompt is empty, too long for the context, or not of a kind that is understood."""

    code = 32


class BusyError(SpecdecError):
    """A generation was started on a decoder whose previous one is still open."""

    code = 33


class NoTokenLeftError(SpecdecError):
    """The caller's own bans leave no token to choose; the message names the options."""

    code = 34


class ClosedError(SpecdecError):
    """The decoder or session was used after `close()`."""

    code = 35


class NotBegunError(SpecdecError):
    """`cancel` was called while the prompt was made, before there was a stream to end."""

    code = 36
