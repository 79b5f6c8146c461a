"""Trace all experts of a mixture, not only those that the traced text activates.

transformers skips an expert that no token chose. A trace records the choice of one text, and the
others would be missing from the graph for good. Optimum rewrites the mixtures it knows; this is
the one it misses. (`specdec.export.graphs.tracing` refuses any graph that lacks a weight.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["every_expert"]

_SKIPPING = "DeepseekV3MoE"


@contextmanager
def every_expert(model: Any) -> Iterator[None]:
    """While active, the mixtures of `model` run each expert, if only on zero rows."""
    kinds = {type(m) for m in model.modules() if type(m).__name__ == _SKIPPING}
    originals = [(kind, kind.moe) for kind in kinds]
    for kind in kinds:
        kind.moe = _mixture
    try:
        yield
    finally:
        for kind, original in originals:
            kind.moe = original


def _mixture(
    self: Any, rows: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """sum_e w_e expert_e(x) over the chosen experts.

    Args:
        self: the mixture.
        rows: float, shape [T, hidden_size].
        chosen: int64, shape [T, k], experts of each row.
        weights: float, shape [T, k], their weights.
    """
    total = torch.zeros_like(rows)
    for index, expert in enumerate(self.experts):
        row, place = torch.where(chosen == index)
        total = total.index_add(0, row, expert(rows[row]) * weights[row, place][:, None])
    return total
