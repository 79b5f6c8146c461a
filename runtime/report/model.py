"""The speed model: from costs and acceptance to the speed-up of every K.

A round with K drafted tokens costs C(K) = K d + T(K + 1) + h(K) and commits
E(K) = 1 + sum_{i <= K} s_i tokens, s_i = a_1 ... a_i the chance that the first i drafted tokens
are accepted. Over long texts

    S(K) = E(K) C(0) / C(K).

A text of N tokens ends in a cut round: its expected time is R(N) = C(k) + sum_j p_j R(N - j),
with k = min(K, N - 1) and p_j the chance that the round commits j tokens; then
S_N(K) = N C(0) / R(N).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["SpeedModel", "acceptance_rates", "break_even_acceptance", "expected_tokens"]

_PRIOR_WEIGHT = 2.0
_PLATEAU = 0.01


def acceptance_rates(by_position: Sequence[tuple[int, int]], length: int) -> list[float]:
    """Chance a_i that drafted token i is accepted after those before it, i = 1 .. `length`.

    Args:
        by_position: (evaluated, accepted) counts; a position with few counts is drawn towards
            the common rate, one without any takes it.
        length: how many positions are wanted.
    """
    evaluated = sum(pair[0] for pair in by_position)
    common = sum(pair[1] for pair in by_position) / evaluated if evaluated else 0.0
    rates = []
    for i in range(length):
        tried, kept = by_position[i] if i < len(by_position) else (0, 0)
        rates.append((kept + _PRIOR_WEIGHT * common) / (tried + _PRIOR_WEIGHT))
    return rates


def expected_tokens(rates: Sequence[float]) -> list[float]:
    """E(0) .. E(len(rates))."""
    survival, expected = 1.0, [1.0]
    for rate in rates:
        survival *= rate
        expected.append(expected[-1] + survival)
    return expected


@dataclass(frozen=True)
class SpeedModel:
    """Costs of a round by K, in seconds."""

    round_seconds: tuple[float, ...]
    """C(0), C(1), ... C(largest K)."""
    draft_seconds: float
    """d, one drafted token."""

    @property
    def largest(self) -> int:
        """The largest K with a cost."""
        return len(self.round_seconds) - 1

    def speedup(self, rates: Sequence[float], num_draft_tokens: int) -> float:
        """S(K) over long texts."""
        plain, cost = self.round_seconds[0], self.round_seconds[num_draft_tokens]
        return expected_tokens(rates[:num_draft_tokens])[-1] * plain / cost

    def text_seconds(self, rates: Sequence[float], num_draft_tokens: int, length: int) -> float:
        """R(`length`): expected seconds for a text of so many tokens."""
        survival = [1.0]
        for rate in rates:
            survival.append(survival[-1] * rate)
        seconds = [0.0]
        for wanted in range(1, length + 1):
            k = min(num_draft_tokens, wanted - 1)
            rest = survival[k] * seconds[wanted - k - 1]
            for committed in range(1, k + 1):
                chance = survival[committed - 1] - survival[committed]
                rest += chance * seconds[wanted - committed]
            seconds.append(self.round_seconds[k] + rest)
        return seconds[length]

    def best(self, rates: Sequence[float]) -> int:
        """The smallest K >= 1 within 1 % of the largest speed-up.

        Speed-ups are flat around their largest; a smaller K depends on fewer measured figures.
        """
        speedups = [self.speedup(rates, k) for k in range(1, self.largest + 1)]
        enough = (1.0 - _PLATEAU) * max(speedups)
        return 1 + next(i for i, speedup in enumerate(speedups) if speedup >= enough)


def break_even_acceptance(model: SpeedModel, num_draft_tokens: int) -> float | None:
    """The even acceptance at which S(K) = 1; None when not even 1.0 reaches it."""
    cost = model.round_seconds[num_draft_tokens] / model.round_seconds[0]
    if num_draft_tokens + 1 < cost:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        if expected_tokens([middle] * num_draft_tokens)[-1] < cost:
            low = middle
        else:
            high = middle
    return high
