"""How often drafted tokens are accepted, by position, as estimated from past rounds.

With a_i the chance that drafted token i is accepted when those before it were, a round with K
drafted tokens commits E(K) = 1 + sum_{i<=K} a_1 ... a_i tokens on average.
"""

from __future__ import annotations

__all__ = ["AcceptanceTable"]


class AcceptanceTable:
    """Running estimates of a_1, a_2, ...: decayed counts, drawn towards the common rate."""

    def __init__(self, prior: float = 0.8, weight: float = 4.0, decay: float = 0.97) -> None:
        """Start from `prior`, which counts as much as `weight` decided positions."""
        self._prior, self._weight, self._decay = prior, weight, decay
        self._counts: list[list[float]] = []
        self.rounds = 0

    def observe(self, evaluated: int, accepted: int) -> None:
        """Add a round in which `evaluated` positions were decided and `accepted` kept."""
        if evaluated == 0:
            return
        self.rounds += 1
        while len(self._counts) < evaluated:
            self._counts.append([0.0, 0.0])
        for position, pair in enumerate(self._counts):
            pair[0] *= self._decay
            pair[1] *= self._decay
            if position < evaluated:
                pair[0] += 1.0
                pair[1] += position < accepted

    def expected_tokens(self, limit: int) -> list[float]:
        """E(0) .. E(limit)."""
        evaluated = sum(pair[0] for pair in self._counts) + self._weight
        accepted = sum(pair[1] for pair in self._counts) + self._weight * self._prior
        common = accepted / evaluated
        survival, expected = 1.0, [1.0]
        for position in range(limit):
            tried, kept = self._counts[position] if position < len(self._counts) else (0.0, 0.0)
            survival *= (kept + self._weight * common) / (tried + self._weight)
            expected.append(expected[-1] + survival)
        return expected
