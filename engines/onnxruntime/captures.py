"""Whether an engine's passes are captured as CUDA graphs, under which numbers, and on which thread.

ONNX Runtime keeps what it captured for each thread and each number, as long as the session. So all
passes of a session run on one thread while it captures, whoever calls, and the engines on one
session, each with buffers of its own, take their numbers from one count.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from specdec.engines.errors import one_line

__all__ = ["Captures"]

_Result = TypeVar("_Result")


class Captures:
    """The CUDA graphs of one session.

    Attributes:
        uncaptured: why passes are not captured although a GPU runs them; None when they are, or
            when nobody wanted it.
    """

    def __init__(
        self, active: bool = False, *, required: bool = False, uncaptured: str | None = None
    ) -> None:
        """Start the thread when `active`.

        Args:
            active: capture the passes of a few rows.
            required: a pass that cannot be captured is an error, and not run without.
            uncaptured: why not, when not `active`.
        """
        self.uncaptured = uncaptured
        self._required = required
        self._num_graphs = 0
        self._thread = ThreadPoolExecutor(1, "specdec-passes") if active else None

    @property
    def active(self) -> bool:
        """Whether passes are captured."""
        return self._thread is not None

    def number(self) -> int:
        """The number of another graph, from 1; none is used twice in a session."""
        self._num_graphs += 1
        return self._num_graphs

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do `work` on the one thread while passes are captured, and else right here.

        An exception of `work` is raised here.
        """
        return work() if self._thread is None else self._thread.submit(work).result()

    def give_up(self, error: Exception) -> bool:
        """Capture no more after `error`; False when that is not for us to decide.

        Args:
            error: of a pass; it becomes the reason.
        """
        if self._thread is None or self._required:
            return False
        self._thread.shutdown(wait=False)
        self._thread = None
        self.uncaptured = f"a pass could not be captured: {one_line(error)}"
        return True
