"""Tests whether paired measurements differ: Wilcoxon's signed-rank test, exact.

The ranks of |d| carry the signs of the differences d. Were A and B alike, every sign would be
as likely + as -, so the chance of each rank sum is counted over all 2^n signs. No distribution
of the measurements is assumed; zeros are left out, ties share their mean rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["signed_rank_p"]


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p value of n paired differences; 1 when all are zero.

    Args:
        differences: finite, one of each pair; independent of each other.
    """
    values = np.asarray([d for d in differences if d != 0.0], np.float64)
    if not values.size:
        return 1.0
    doubled = _doubled_ranks(np.abs(values))
    total = int(doubled.sum())
    ways = np.zeros(total + 1)  # of each sum of the ranks with a plus, as chances
    ways[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[: total + 1 - rank]
        ways = (ways + shifted) / 2.0
    plus = int(doubled[values > 0.0].sum())
    smaller = min(plus, total - plus)
    return min(1.0, 2.0 * float(ways[: smaller + 1].sum()))


def _doubled_ranks(sizes: np.ndarray) -> np.ndarray:
    """Twice the mean rank of each size, int [n]: whole numbers with ties, too."""
    ordered = np.sort(sizes)
    first = np.searchsorted(ordered, sizes, side="left")
    last = np.searchsorted(ordered, sizes, side="right")
    return np.asarray(first + last + 1, np.int64)
