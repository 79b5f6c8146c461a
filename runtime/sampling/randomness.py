"""Counter-based random streams, in which a draw is a function of its position alone.

A generation draws a drafted token, an accept decision, or the final token of a round. Each
comes from Philox (Salmon et al., 2011) keyed by (seed, stream), with the counter
(committed length at the round's start, index in the round). State is thus a pure function of
the committed length: cancelling and resuming leaves no trace.

Why the round's start is in the counter, and not only the absolute position: after a rejection
the next round drafts for positions that were already drafted. Reusing their noise would make
the new draft depend on what was just rejected and bias the output.

The `coupled` rule wants exactly that reuse, and has its own stream, keyed by absolute
position only: the token is argmin_x E_x / P(x) with E_x unit exponentials, which is the
Gumbel-max draw argmax_x log P(x) + G_x.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specdec.runtime.sampling.distribution import Distribution

__all__ = ["CounterRandom", "CoupledRandom", "RoundRandom"]

_DRAFT, _ACCEPT, _FINAL, _NOISE = range(4)


class RoundRandom(Protocol):
    """Every random decision of a round, by name."""

    def begin(self, committed_length: int) -> None:
        """A round starts with this many committed tokens."""
        ...

    def draft(self, index: int, distribution: Distribution) -> int:
        """Draw the drafted token `index` (0-based) of this round."""
        ...

    def accepts(self, index: int, probability: float) -> bool:
        """True with this probability; one independent decision per `index` and round."""
        ...

    def final(self, distribution: Distribution) -> int:
        """Draw the correction or bonus token of this round."""
        ...

    def coupled(self, index: int, distribution: Distribution) -> int:
        """Draw the token `index` places after the round's start with that position's noise."""
        ...


class CounterRandom:
    """Philox streams for one generation."""

    def __init__(self, seed: int | None) -> None:
        """Key the streams by `seed` (0 .. 2**64 - 1); None takes fresh entropy."""
        self.seed = secrets.randbits(64) if seed is None else seed
        self._start = 0
        self._noise: dict[int, NDArray[np.float64]] = {}
        self._bits = np.random.Philox(key=np.array([self.seed, 0], dtype=np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def begin(self, committed_length: int) -> None:
        """A round starts; noise of earlier positions is dropped."""
        self._start = committed_length
        self._noise = {p: n for p, n in self._noise.items() if p >= committed_length}

    def draft(self, index: int, distribution: Distribution) -> int:
        """Draw a drafted token."""
        return self._draw(_DRAFT, index, distribution)

    def accepts(self, index: int, probability: float) -> bool:
        """True with this probability; certain decisions use no randomness."""
        if probability >= 1.0 or probability <= 0.0:
            return probability >= 1.0
        return self.uniform(_ACCEPT, self._start, index) < probability

    def final(self, distribution: Distribution) -> int:
        """Draw the correction or bonus token."""
        return self._draw(_FINAL, 0, distribution)

    def coupled(self, index: int, distribution: Distribution) -> int:
        """`argmin_x E_x / P(x)` with the noise of position `start + index`."""
        if distribution.is_one_hot:
            return distribution.greedy()
        noise = self.noise(self._start + index, distribution.vocab_size)
        if distribution.ids is not None:
            noise = noise[distribution.ids]
        with np.errstate(divide="ignore", over="ignore"):
            best = int(np.argmin(noise / distribution.probs))
        return best if distribution.ids is None else int(distribution.ids[best])

    def noise(self, position: int, size: int) -> NDArray[np.float64]:
        """Unit exponential noise float64 [size] of an absolute position."""
        noise = self._noise.get(position)
        if noise is None or noise.shape[0] != size:
            self._seek(_NOISE, position, 0)
            noise = self._generator.standard_exponential(size)
            self._noise[position] = noise
        return noise

    def uniform(self, stream: int, start: int, index: int) -> float:
        """The uniform in [0, 1) that belongs to this place."""
        self._seek(stream, start, index)
        return float(self._generator.random())

    def _draw(self, stream: int, index: int, distribution: Distribution) -> int:
        if distribution.is_one_hot:
            return distribution.greedy()
        return distribution.draw(self.uniform(stream, self._start, index))

    def _seek(self, stream: int, start: int, index: int) -> None:
        """Place the generator; setting the state is five times cheaper than a new one."""
        inner = self._state["state"]
        inner["key"][:] = (self.seed, stream)
        inner["counter"][:] = (0, index, start, 0)
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._bits.state = self._state


class CoupledRandom(CounterRandom):
    """Drafts with the noise the target will use, for `verify="coupled"`."""

    def draft(self, index: int, distribution: Distribution) -> int:
        """Draw a drafted token with the shared noise of its position."""
        return self.coupled(index, distribution)
