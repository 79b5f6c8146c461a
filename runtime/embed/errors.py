"""Errors that only embedders meet; the tree continues `specdec.runtime.errors`.

    SpecdecError                1
    +-- EmbedError             49
        +-- BadHandleError     50   a handle that is NULL, of the other kind, or never given out
        +-- BadArgumentError   51   a prompt or option document that cannot be read
        +-- CallbackError      53   a callback of the host threw an exception
        +-- BuildError         56   the library cannot be built here

Codes 52, 54 and 55 belong to the C side (`specdec.h`): they arise without Python.
"""

from __future__ import annotations

from specdec.runtime.errors import SpecdecError

__all__ = ["BadArgumentError", "BadHandleError", "BuildError", "CallbackError", "EmbedError"]


class EmbedError(SpecdecError):
    """Root of the errors at the border between a host and the runtime."""

    code = 49


class BadHandleError(EmbedError):
    """A handle is NULL, of the other kind, or was never given out."""

    code = 50


class BadArgumentError(EmbedError):
    """A prompt or an option document cannot be read; the message says what is allowed."""

    code = 51


class CallbackError(EmbedError):
    """A callback of the host threw an exception, which ended the generation."""

    code = 53


class BuildError(EmbedError):
    """The library cannot be built here; the message says what is missing."""

    code = 56
