"""How many tokens to draft in the next round.

A round with K drafted tokens commits E(K) = 1 + sum_{i<=K} a_1 ... a_i tokens, with a_i the
chance that token i is accepted when those before it were, and costs K d + T(K + 1). The
adaptive policy takes the K with the most expected tokens per second, K = 0 included, so a
draft that does not pay degrades to plain decoding.

K is chosen before anything of the round is sampled, from past rounds only: it can not bias
the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specdec.runtime.costs import CostTable

__all__ = ["AcceptanceTable", "AdaptiveLength", "DraftLength", "FixedLength", "RoundOutcome"]

_LEAVE_PLAIN, _ENTER_PLAIN = 1.05, 0.98
_MIN_EVIDENCE = 8
_PROBE_ROUNDS = 4
_FIRST_WAIT, _LONGEST_WAIT = 16, 256
_EXPLORE_EVERY = 48


@dataclass(frozen=True)
class RoundOutcome:
    """What the policy learns from: counts of one round and its seconds, host work included."""

    drafted: int
    evaluated: int
    accepted: int
    draft_seconds: float
    verify_seconds: float


class DraftLength(Protocol):
    """Chooses the number of tokens to ask the drafter for."""

    def choose(self, limit: int) -> int:
        """A number in 0 .. `limit` for the next round, `limit` >= 1."""
        ...

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from a finished round."""
        ...

    @property
    def fallback(self) -> str | None:
        """Why the policy decodes plainly at present; None while it drafts."""
        ...


class FixedLength:
    """Always the same number, cut to what fits."""

    def __init__(self, num_draft_tokens: int) -> None:
        self._wanted = num_draft_tokens

    def choose(self, limit: int) -> int:
        """The fixed number, or `limit` when that is smaller."""
        return min(self._wanted, limit)

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    @property
    def fallback(self) -> str | None:
        """Never falls back."""
        return None


class AcceptanceTable:
    """Running estimates of a_1, a_2, ...: decayed counts, drawn towards the common rate."""

    def __init__(self, prior: float = 0.8, weight: float = 4.0, decay: float = 0.97) -> None:
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


class AdaptiveLength:
    """Maximises expected tokens per second.

    Args:
        costs: d and T(M).
        acceptance: shared between generations when learning from the clock.
        max_draft_tokens: largest K considered.
        use_clock: False freezes the costs, which makes the choice, and with a seed the text,
            a function of the tokens alone.
    """

    def __init__(
        self,
        costs: CostTable,
        acceptance: AcceptanceTable | None = None,
        *,
        max_draft_tokens: int = 16,
        use_clock: bool = True,
    ) -> None:
        self._costs = costs
        self._acceptance = acceptance or AcceptanceTable()
        self._max = max_draft_tokens
        self._use_clock = use_clock
        self._plain = False
        self._speedup = 1.0
        self._wait = _FIRST_WAIT
        self._plain_rounds = self._probes_left = self._draft_rounds = 0

    @property
    def fallback(self) -> str | None:
        """Set while plain decoding is predicted to be faster."""
        if not self._plain:
            return None
        return f"drafting is predicted to run at {self._speedup:.2f} times the plain speed"

    def choose(self, limit: int) -> int:
        """The best K, hysteresis and probes applied."""
        limit = min(limit, self._max)
        if limit <= 0:
            return 0
        best = self._best(limit)
        self._reconsider()
        if self._plain:
            return best if self._probe_now() else 0
        self._draft_rounds += 1
        if self._use_clock and self._draft_rounds % _EXPLORE_EVERY == 0:
            return self._explore(best, limit)
        if self._use_clock and self._draft_rounds == 2 and not self._costs.measured(1):
            return 0
        return best

    def observe(self, outcome: RoundOutcome) -> None:
        """Update acceptance, and costs when the clock is used."""
        self._acceptance.observe(outcome.evaluated, outcome.accepted)
        if self._use_clock:
            if outcome.drafted:
                self._costs.measure_draft(outcome.draft_seconds / outcome.drafted)
            self._costs.measure_verify(outcome.drafted + 1, outcome.verify_seconds)

    def _best(self, limit: int) -> int:
        """K in 1 .. limit with the highest rate; also notes its predicted speed-up."""
        expected = self._acceptance.expected_tokens(limit)
        draft, plain = self._costs.draft(), 1.0 / self._costs.verify(1)
        rates = [expected[k] / (k * draft + self._costs.verify(k + 1)) for k in range(1, limit + 1)]
        best = max(range(limit), key=lambda k: rates[k])
        self._speedup = rates[best] / plain
        return best + 1

    def _reconsider(self) -> None:
        """Enter or leave plain decoding, with a gap between the two thresholds."""
        if self._plain and self._speedup > _LEAVE_PLAIN:
            self._plain, self._wait, self._probes_left = False, _FIRST_WAIT, 0
        elif not self._plain and self._speedup < _ENTER_PLAIN:
            self._plain = self._acceptance.rounds >= _MIN_EVIDENCE
            self._plain_rounds = 0

    def _probe_now(self) -> bool:
        """True in the few rounds in which a losing draft gets another chance."""
        if self._probes_left == 0:
            self._plain_rounds += 1
            if self._plain_rounds <= self._wait:
                return False
            self._plain_rounds = 0
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
            self._probes_left = _PROBE_ROUNDS
        self._probes_left -= 1
        return True

    def _explore(self, best: int, limit: int) -> int:
        """Now and then a neighbour of the best K, in turn below and above: 0 keeps T(1) fresh."""
        step = 1 if (self._draft_rounds // _EXPLORE_EVERY) % 2 else -1
        return min(max(best + step, 0), limit)
