"""Top-k, top-p and min-p on one row, with exact rules for ties.

Tokens rank by value, highest first, and equal values by id, lowest first:
top-k keeps the first k; top-p keeps the shortest prefix whose probability reaches p (at least
one token); min-p keeps every token with at least `min_p` times the highest probability.
"""

from __future__ import annotations

import numpy as np

from specdec.runtime.sampling.distribution import Floats, Ids

__all__ = ["leading", "nucleus_ids", "surest_nucleus", "top_k_ids"]

_MASS_ERROR = 1e-5
"""Bound of the relative error of a mass summed on a device; exp in float32 dominates it."""
_GROUP = 32
_FIRST_NUCLEUS = 128


def top_k_ids(values: Floats, k: int) -> Ids:
    """The k best ids in ascending order of id.

    Args:
        values: float [N] without NaN.
        k: 1 <= k; all ids when k >= N.

    Returns:
        int64 [min(k, N)].
    """
    size = values.shape[0]
    if k >= size:
        return np.arange(size, dtype=np.int64)
    ids = _candidates(values, k)
    kept = values[ids]
    threshold = np.partition(kept, ids.shape[0] - k)[ids.shape[0] - k]
    at_least = kept >= threshold
    ids, kept = ids[at_least], kept[at_least]
    if ids.shape[0] > k:
        tied = np.flatnonzero(kept == threshold)
        ids = np.delete(ids, tied[k - ids.shape[0] :])
    return ids


def _candidates(values: Floats, k: int) -> Ids:
    """Ascending ids of a superset of every id that ties with or beats the k-th best.

    The row is split into groups; k groups have a maximum of at least the k-th best group
    maximum, so k values do too, and the k-th best value is at least that high.
    """
    width = values.shape[0] // _GROUP
    if width <= k:
        return np.arange(values.shape[0], dtype=np.int64)
    maxima = values[: width * _GROUP].reshape(_GROUP, width).max(axis=0)
    bound = np.partition(maxima, width - k)[width - k]
    return np.flatnonzero(values >= bound)


def nucleus_ids(weights: Floats, top_p: float) -> Ids:
    """The smallest set of best ids that holds the share `top_p` of the weight, ascending.

    Args:
        weights: float [N], non-negative with a positive sum; need not be normalised.
        top_p: 0 < top_p <= 1.

    Returns:
        int64 [S], S >= 1. Sums are in float64.
    """
    wanted = top_p * float(weights.sum(dtype=np.float64))
    size, count = weights.shape[0], _FIRST_NUCLEUS
    while True:
        ids = top_k_ids(weights, count)
        order = np.argsort(-weights[ids], kind="stable")
        mass = np.cumsum(weights[ids[order]], dtype=np.float64)
        if mass[-1] >= wanted or count >= size:
            break
        count *= 8
    kept = int(np.searchsorted(mass, wanted, side="left")) + 1
    return np.sort(ids[order[:kept]])


def leading(values: Floats, wanted: int, size: int) -> int | None:
    """Count the best values that certainly precede every other value of the row, ties included.

    Args:
        values: float [C], the best values of a row in descending order, at least one.
        wanted: how many to take, at most C.
        size: values in the whole row; C of them may be all.

    Returns:
        The largest number <= `wanted` (exactly `wanted` when that is below C) such that every
        value outside is lower than every one inside; None when ties leave none.
    """
    count = values.shape[0]
    if count >= size:
        wanted = min(wanted, size)
        return wanted if wanted == size or values[wanted - 1] > values[wanted] else None
    if wanted < count:
        return wanted if values[wanted - 1] > values[wanted] else None
    return int(np.count_nonzero(values > values[-1])) or None


def surest_nucleus(weights: Floats, mass: float, top_p: float) -> Ids | None:
    """`nucleus_ids` of a row of which only the best are known.

    Args:
        weights: float [C], the weights of the best tokens, in ascending order of their ids.
        mass: the weight of the whole row, as a device summed it.
        top_p: 0 < top_p < 1.

    Returns:
        int64 [S], as indices into `weights`, ascending; None when the nucleus is larger, or ends
        so close to `top_p` that the rounding of `mass` decides.
    """
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order], dtype=np.float64)
    bounds = np.array([1.0 - _MASS_ERROR, 1.0 + _MASS_ERROR]) * top_p * mass
    first, last = np.searchsorted(sums, bounds, side="left")
    if first != last or first == sums.shape[0]:
        return None
    # The next token of equal weight could be one that is not known.
    cut = weights[order[first]]
    return None if cut == weights.min() else np.sort(order[: first + 1])
