"""`Distribution`: an immutable probability distribution over token ids.

Dense (one probability per id), or sparse (ascending ids and their probabilities) after a
truncation such as top-k, or one-hot for a greedy choice. The array a token is drawn from is
the very array later used in the accept test and in the residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Distribution", "Floats", "Ids", "draw_index"]

Floats = NDArray[np.floating[Any]]
Ids = NDArray[np.int64]

_BLOCK = 256


class Distribution:
    """Probabilities over ids `0 .. vocab_size - 1`; never modified after it is made.

    Attributes:
        vocab_size: number of ids.
        ids: int64 [S] ascending ids of the support, or None when `probs` is dense.
        probs: float32 or float64 [S], or [vocab_size] when dense; sums to 1 up to rounding.
    """

    __slots__ = ("ids", "probs", "vocab_size")

    def __init__(self, vocab_size: int, ids: Ids | None, probs: Floats) -> None:
        self.vocab_size = vocab_size
        self.ids = ids
        self.probs = probs

    @classmethod
    def dense(cls, probs: Floats) -> Distribution:
        """Wrap float probabilities [vocab_size], taken as they are (not copied)."""
        return cls(probs.shape[0], None, probs)

    @classmethod
    def one_hot(cls, token: int, vocab_size: int, dtype: Any = np.float32) -> Distribution:
        """All probability on `token`."""
        return cls(vocab_size, np.array([token], dtype=np.int64), np.ones(1, dtype=dtype))

    @property
    def is_one_hot(self) -> bool:
        """True when the support is written as a single id."""
        return len(self.probs) == 1

    def total(self) -> float:
        """Sum of the probabilities, in float64: 1 up to rounding."""
        return float(self.probs.sum(dtype=np.float64))

    def prob(self, token: int) -> float:
        """Probability of `token`, 0.0 outside the support."""
        if self.ids is None:
            return float(self.probs[token])
        index = int(np.searchsorted(self.ids, token))
        if index < self.ids.shape[0] and self.ids[index] == token:
            return float(self.probs[index])
        return 0.0

    def greedy(self) -> int:
        """The most probable token; ties go to the lowest id."""
        return self._token(int(np.argmax(self.probs)))

    def draw(self, u: float) -> int:
        """Inverse-CDF draw: the token whose share of [0, 1) holds `u`.

        Args:
            u: uniform in [0, 1). A token of probability zero is never returned, even when
                rounding carries `u` to the end of the cumulative sum.
        """
        if self.is_one_hot:
            return self._token(0)
        return self._token(draw_index(self.probs, u))

    def support(self) -> Ids:
        """int64 ids of the written support (all ids when dense), ascending."""
        return np.arange(self.vocab_size, dtype=np.int64) if self.ids is None else self.ids

    def residual_mass(self, other: Distribution, scale: float = 1.0) -> float:
        """`sum_x [scale * self(x) - other(x)]+`, summed in float64."""
        return float(self._excess(other, scale).sum(dtype=np.float64))

    def residual(self, other: Distribution, scale: float = 1.0) -> Distribution:
        """`norm([scale * self - other]+)`, the distribution of the token after a rejection.

        Returns `self` when nothing is left, that is when the two agree up to rounding.
        """
        excess = self._excess(other, scale)
        mass = excess.sum(dtype=np.float64)
        if not mass > 0.0:
            return self
        np.divide(excess, mass, out=excess, casting="same_kind")
        return Distribution(self.vocab_size, self.ids, excess)

    def _excess(self, other: Distribution, scale: float) -> Floats:
        """A new array over the support of `self`: `[scale * self - other]+`."""
        dtype = np.result_type(self.probs, other.probs)
        excess = np.multiply(self.probs, scale, dtype=dtype)
        if other.ids is None:
            excess -= other.probs if self.ids is None else other.probs[self.ids]
        elif self.ids is None:
            excess[other.ids] -= other.probs
        else:
            index = np.searchsorted(self.ids, other.ids)
            index[index == self.ids.shape[0]] = 0
            shared = self.ids[index] == other.ids
            excess[index[shared]] -= other.probs[shared]
        return np.maximum(excess, 0.0, out=excess)

    def _token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])


def draw_index(weights: Floats, u: float) -> int:
    """Index drawn with probability proportional to `weights`, by inverse CDF in float64.

    Args:
        weights: float [N], non-negative with a positive sum; need not be normalised.
        u: uniform in [0, 1).

    Long rows go in two steps, a block of 256 first and then the index inside it, which
    costs a third of one long cumulative sum. An index of weight zero is never returned.
    """
    size = weights.shape[0]
    if size <= 2 * _BLOCK:
        return _draw_short(weights, u)
    whole = size - size % _BLOCK
    sums = weights[:whole].reshape(-1, _BLOCK).sum(axis=1, dtype=np.float64)
    if whole < size:
        sums = np.append(sums, weights[whole:].sum(dtype=np.float64))
    edges = np.cumsum(sums)
    point = u * edges[-1]
    block = _first_above(edges, point)
    before = edges[block - 1] if block else 0.0
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK]
    share = min(max((point - before) / sums[block], 0.0), 1.0)
    return block * _BLOCK + _draw_short(inside, share)


def _draw_short(weights: Floats, u: float) -> int:
    edges = np.cumsum(weights, dtype=np.float64)
    return _first_above(edges, u * edges[-1])


def _first_above(edges: NDArray[np.float64], point: float) -> int:
    """First index whose cumulative sum exceeds `point`; the last of positive weight at the end."""
    index = int(np.searchsorted(edges, point, side="right"))
    if index == edges.shape[0]:
        index = int(np.searchsorted(edges, edges[-1], side="left"))
    return index
