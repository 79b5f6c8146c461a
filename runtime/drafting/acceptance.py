"""Estimate the acceptance of drafted tokens by place, from past rounds.

With a_i the chance that the drafted token at place i is accepted when those before it were, a
round with K drafted tokens commits E(K) = 1 + sum_{i<=K} a_1 ... a_i tokens on average. For a
draft model the place is the position in the draft. For a look-up it is the number of tokens
that match so far, drafted ones included: a longer match is more often right, whether it was
found long or grew.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["AcceptanceTable", "lookup_acceptance"]

_LAST_PLACE = 24
"""Places from here on count as one."""
_DECAY = 0.98
"""Factor of all counts with every draft that is observed."""
_PRIOR_REJECTIONS = 0.4
"""Weight of the prior, in rejections."""
_COMMON_WEIGHT = 16.0
"""Weight of the common level at each place, in decided tokens."""


class AcceptanceTable:
    """Running estimates of a_i: decayed counts, drawn towards a common level.

    The common level is the prior with its rejections multiplied by one factor: rejections seen
    over rejections expected, at all places. The level itself is uncertain, and a long accepted
    prefix is evidence that it is high: each accepted token raises the estimate for later places.
    """

    def __init__(self, prior: Callable[[int], float] = lambda place: 0.85) -> None:
        """Start from a_i by place, below 1; the default is for a draft model."""
        self._foreseen = [1.0 - prior(place) for place in range(_LAST_PLACE + 1)]
        self.clear()

    def clear(self) -> None:
        """Forget what was observed."""
        self._tried = [0.0] * (_LAST_PLACE + 1)
        self._rejected = [0.0] * (_LAST_PLACE + 1)

    def observe(self, evaluated: int, accepted: int, first: int = 0) -> None:
        """Add a draft from place `first` on: `evaluated` tokens decided, `accepted` kept."""
        if evaluated == 0:
            return
        self._tried = [_DECAY * count for count in self._tried]
        self._rejected = [_DECAY * count for count in self._rejected]
        for place in range(first, first + evaluated):
            self._tried[min(place, _LAST_PLACE)] += 1.0
        if accepted < evaluated:
            self._rejected[min(first + accepted, _LAST_PLACE)] += 1.0

    def expected_tokens(self, limit: int, first: int = 0) -> list[float]:
        """E(0) .. E(limit) of drafts from place `first` on."""
        pairs = zip(self._tried, self._foreseen, strict=True)
        foreseen = _PRIOR_REJECTIONS + sum(tried * share for tried, share in pairs)
        seen = _PRIOR_REJECTIONS + sum(self._rejected)
        survival, expected = 1.0, [1.0]
        for place in range(first, first + limit):
            i = min(place, _LAST_PLACE)
            common = min(seen / foreseen * self._foreseen[i], 1.0)
            rejected = self._rejected[i] + _COMMON_WEIGHT * common
            survival *= 1.0 - rejected / (self._tried[i] + _COMMON_WEIGHT)
            expected.append(expected[-1] + survival)
            foreseen += self._foreseen[i]
        return expected


def lookup_acceptance() -> AcceptanceTable:
    """For look-ups: 0.50, 0.60, 0.66, 0.70, ... after 2, 3, 4, 5, ... matching tokens."""
    return AcceptanceTable(lambda matched: 1.0 - 0.5 * (2.0 / max(matched, 2)) ** 0.55)
