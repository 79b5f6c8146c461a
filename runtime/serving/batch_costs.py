"""What a round costs one request while others share its passes.

With B requests in step, each drafting K tokens, a joint round commits B E(K) tokens and costs
K d(B) + T(B (K + 1)): d(B) is the time of a joint draft step of B rows and T(M) that of a target
pass of M rows. Divided by B, these are costs that one request may reckon with, so that the K it
chooses is the best for all: rows get dearer as B rises, K falls, and is 0 when plain decoding of
all together is faster.

Both are measured pass by pass, by whoever runs the passes, with the same filter as for a single
request.
"""

from __future__ import annotations

import numpy as np

from specdec.runtime.drafting.costs import CostTable, Vector

__all__ = ["BatchCosts"]

_MOST_ROWS = 256
"""Passes with more rows read prompts; they say nothing of a verification."""


class BatchCosts:
    """The costs of joint passes, as a share of one request.

    Attributes:
        num_running: B, how many requests are in their rounds at present; at least 1.
    """

    def __init__(self, start: CostTable) -> None:
        """Start from the costs of a single request."""
        self._target = start.fresh()
        self._draft = _draft_curve(start)
        self.num_running = 1
        self._measured = False

    @property
    def plain_seconds(self) -> float | None:
        """Seconds of a pass of one row over a short context; None before a pass was measured."""
        return float(self._target.verify(1, 0)[0]) if self._measured else None

    def draft(self, context: int) -> float:
        """d(B) / B, seconds a drafted token."""
        batch = self.num_running
        return float(self._draft.verify(batch, context)[-1]) / batch

    def verify(self, most_rows: int, context: int) -> Vector:
        """T(B) / B .. T(B most_rows) / B, float64 [most_rows] seconds."""
        batch = self.num_running
        curve = self._target.verify(batch * most_rows, context)
        shares: Vector = curve[batch - 1 :: batch] / batch
        return shares

    def doubt(self, context: int) -> float:
        """Standard deviation of T(1) over T(1)."""
        return self._target.doubt(context)

    def measure_draft(self, seconds_per_token: float, context: int) -> None:
        """Nothing: a request's own clock counts the others' work, too."""

    def measure_verify(self, rows: int, seconds: float, context: int) -> None:
        """Nothing, for the same reason."""

    def measure_pass(self, drafts: bool, rows: int, seconds: float, context: int) -> None:
        """Learn from a joint pass.

        Args:
            drafts: it was the draft's.
            rows: of all its sequences.
            context: mean length of their caches.
        """
        self._measured = self._measured or not drafts
        if rows <= _MOST_ROWS:
            (self._draft if drafts else self._target).measure_verify(rows, seconds, context)


def _draft_curve(start: CostTable) -> CostTable:
    """A joint draft step by its rows: the target's shape at the draft's price until measured."""
    rows = np.array([1, 5, 9, 33])
    target = start.verify(int(rows[-1]), 0)[rows - 1]
    share = start.draft(0) / float(target[0])
    seconds = {int(m): float(t) * share for m, t in zip(rows, target, strict=True)}
    return CostTable(seconds[1], seconds)
