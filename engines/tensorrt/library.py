"""Import either of the two TensorRT libraries, and collect what their logger reports.

`tensorrt` builds engines on the GPU they will run on; `tensorrt_rtx` builds ahead of time, for
compute capabilities of choice, on any machine. Their Python interfaces are the same.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from specdec.engines.errors import MissingDependencyError

__all__ = ["TENSORRT_MODULES", "collecting_logger", "import_tensorrt"]

TENSORRT_MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
"""Python module by name of the backend."""

_log = logging.getLogger(__name__)


def import_tensorrt(backend: str) -> Any:
    """The module of a backend.

    Args:
        backend: a key of `TENSORRT_MODULES`.

    Raises:
        MissingDependencyError: it is not installed, or its libraries cannot be loaded.
    """
    try:
        return importlib.import_module(TENSORRT_MODULES[backend])
    except (ImportError, OSError) as error:
        raise MissingDependencyError(
            f"{TENSORRT_MODULES[backend]} cannot be imported ({' '.join(str(error).split())}); "
            f"run: pip install {backend}"
        ) from error


def collecting_logger(module: Any) -> Any:
    """A TensorRT logger that writes to `logging` and keeps its errors in `errors`.

    Where TensorRT fails it returns None and writes the reason to its logger.
    """

    class CollectingLogger(module.ILogger):
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            line = " ".join(message.split())
            if severity <= module.ILogger.Severity.ERROR:
                self.errors.append(line)
            _log.debug("%s", line)

        def reason(self) -> str:
            """The first error since the logger was made, which names the cause."""
            return self.errors[0][:300] if self.errors else "TensorRT gave no reason"

    return CollectingLogger()
