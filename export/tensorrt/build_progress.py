"""Compute the progress of a TensorRT build from the phases it reports.

Phases nest: a phase that starts under a parent is the parent's current step. Its place in the
whole build is therefore the share of that step,

    share(root) = 1,   share(phase) = share(parent) / steps(parent),

and the build has done  sum over open phases of share * completed / steps. Phases that run side by
side under one parent overlap in that sum; what is reported never goes back and ends at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BuildProgress"]


@dataclass
class _Phase:
    share: float
    steps: int
    completed: int = 0


class BuildProgress:
    """Turns phases into `advance` calls that add up to at most 1."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance
        self._open: dict[str, _Phase] = {}
        self._reported = 0.0
        self._stopped = False

    def start(self, phase: str, parent: str | None, num_steps: int) -> None:
        """A phase begins; `parent` is the phase whose step it is, None for the whole build."""
        above = self._open.get(parent) if parent is not None else None
        share = 1.0 if above is None else above.share / above.steps
        self._open[phase] = _Phase(share, max(num_steps, 1))

    def complete(self, phase: str, step: int) -> bool:
        """Step number `step` (from 0) is done; False asks the build to end."""
        known = self._open.get(phase)
        if known is not None:
            known.completed = min(step + 1, known.steps)
            self._report()
        return not self._stopped

    def finish(self, phase: str) -> None:
        """A phase is over."""
        known = self._open.pop(phase, None)
        if known is not None and not self._open and not self._stopped:
            self._report(1.0)

    def stop(self) -> None:
        """Ask the build to end at its next step; from any thread."""
        self._stopped = True

    def _report(self, done: float | None = None) -> None:
        if done is None:
            done = sum(p.share * p.completed / p.steps for p in self._open.values())
        gained = min(done, 1.0) - self._reported
        if gained > 0:
            self._reported += gained
            self._advance(gained)
