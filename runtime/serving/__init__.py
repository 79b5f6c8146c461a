"""Many requests over one package: a scheduler of joint passes, and the decoders that stand on it.

The commands and hosts may use it; it may use `engines.slots`, greenlet, and every folder of the
runtime but the report, the audit and `embed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.runtime.serving.asynchronous import AsyncDecoder
    from specdec.runtime.serving.batch_decoder import BatchDecoder
    from specdec.runtime.serving.requests import Request

__all__ = ["AsyncDecoder", "BatchDecoder", "Request"]

_HOME = {"AsyncDecoder": "asynchronous", "BatchDecoder": "batch_decoder", "Request": "requests"}


def __getattr__(name: str) -> Any:
    """Import the scheduler only when it is used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from specdec.runtime.errors import MissingDependencyError

    try:
        module = import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("specdec"):
            raise
        raise MissingDependencyError(
            f"serving many requests needs {error.name}, which is not installed; "
            f"run: pip install {error.name}"
        ) from error
    return getattr(module, name)
