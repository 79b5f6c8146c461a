"""Who drafts in the next round, and how many tokens.

A round with K tokens drafted by one source commits E(K) tokens (`acceptance`) and costs
K d + T(K + 1), with d the source's cost per token (`costs`; nothing for a look-up). The adaptive
policy takes the source and the K with the most expected tokens per second. A source that does
not pay rests, and is probed again now and then; when all rest, decoding is plain.

Source and K are chosen before anything of the round is sampled, from committed tokens and past
rounds only: the choice can not bias the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specdec.runtime.acceptance import AcceptanceTable
from specdec.runtime.costs import CostTable
from specdec.runtime.drafters import MODEL, Offer

__all__ = ["PLAIN", "AdaptiveLength", "Choice", "DraftLength", "FixedLength", "RoundOutcome"]

_LEAVE_REST, _ENTER_REST = 1.05, 0.98
_MIN_EVIDENCE = 8
_PROBE_ROUNDS = 4
_FIRST_WAIT, _LONGEST_WAIT = 16, 256
_EXPLORE_EVERY = 48


@dataclass(frozen=True)
class Choice:
    """A source to ask for this many tokens; none means a plain step."""

    source: str
    num_draft_tokens: int


PLAIN = Choice("", 0)


@dataclass(frozen=True)
class RoundOutcome:
    """What the policy learns from: counts of one round and its seconds, host work included."""

    drafted: int
    evaluated: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    source: str = MODEL


class DraftLength(Protocol):
    """Chooses the source and the number of tokens to ask it for."""

    def choose(self, offers: Sequence[Offer]) -> Choice:
        """One of `offers`, each with room for at least one token, or `PLAIN`."""
        ...

    def observe(self, outcome: RoundOutcome) -> None:
        """Learn from a finished round."""
        ...

    @property
    def fallback(self) -> str | None:
        """Why the policy decodes plainly at present; None while it drafts."""
        ...


class FixedLength:
    """Always the same number, cut to what fits, from the first source that offers."""

    def __init__(self, num_draft_tokens: int) -> None:
        self._wanted = num_draft_tokens

    def choose(self, offers: Sequence[Offer]) -> Choice:
        """The fixed number, or the room when that is smaller."""
        return Choice(offers[0].source, min(self._wanted, offers[0].room)) if offers else PLAIN

    def observe(self, outcome: RoundOutcome) -> None:
        """Nothing to learn."""

    @property
    def fallback(self) -> str | None:
        """Never falls back."""
        return None


class AdaptiveLength:
    """Maximises expected tokens per second.

    Args:
        costs: d by source, and T(M).
        acceptance: of the draft model, shared between generations when learning from the
            clock. Look-ups are judged anew in each generation, by its text.
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
        self._max = max_draft_tokens
        self._use_clock = use_clock
        self._sources = {MODEL: _Source(acceptance or AcceptanceTable())}
        self._plain_speedup: float | None = None
        self._rounds = 0

    @property
    def fallback(self) -> str | None:
        """Set while plain decoding is predicted to be faster than any source on offer."""
        if self._plain_speedup is None:
            return None
        return f"drafting is predicted to run at {self._plain_speedup:.2f} times the plain speed"

    def choose(self, offers: Sequence[Offer]) -> Choice:
        """The best source and K, rests and probes applied."""
        ranked = sorted(
            (self._plan(offer) for offer in offers if offer.room > 0 and self._max > 0),
            key=lambda plan: -plan.speedup,
        )
        if not ranked:
            return PLAIN
        awake = [plan for plan in ranked if self._state(plan.source).awake(plan.speedup)]
        self._plain_speedup = None if awake else ranked[0].speedup
        if not awake:
            return PLAIN
        self._rounds += 1
        if self._use_clock and self._rounds % _EXPLORE_EVERY == 0:
            return self._explore(awake)
        if self._use_clock and self._rounds == 2 and not self._costs.measured(1):
            return PLAIN
        return Choice(awake[0].source, awake[0].num_draft_tokens)

    def observe(self, outcome: RoundOutcome) -> None:
        """Update acceptance, and costs when the clock is used."""
        if outcome.drafted:
            self._state(outcome.source).acceptance.observe(outcome.evaluated, outcome.accepted)
        if self._use_clock:
            if outcome.drafted:
                seconds = outcome.draft_seconds / outcome.drafted
                self._costs.measure_draft(seconds, outcome.source)
            self._costs.measure_verify(outcome.drafted + 1, outcome.verify_seconds)

    def _state(self, source: str) -> _Source:
        state = self._sources.get(source)
        if state is None:
            state = self._sources[source] = _Source(AcceptanceTable(_prior(source)))
        return state

    def _plan(self, offer: Offer) -> _Plan:
        """K in 1 .. room with the highest rate, and its speed relative to plain decoding."""
        limit = min(offer.room, self._max)
        expected = self._state(offer.source).acceptance.expected_tokens(limit)
        draft, plain = self._costs.draft(offer.source), 1.0 / self._costs.verify(1)
        rates = [expected[k] / (k * draft + self._costs.verify(k + 1)) for k in range(1, limit + 1)]
        best = max(range(limit), key=lambda k: rates[k])
        return _Plan(offer.source, best + 1, limit, rates[best] / plain)

    def _explore(self, awake: list[_Plan]) -> Choice:
        """Now and then something else: the runner-up, one token less (0 keeps T(1) fresh), more."""
        turn = (self._rounds // _EXPLORE_EVERY) % 3
        if turn == 0 and len(awake) > 1:
            return Choice(awake[1].source, awake[1].num_draft_tokens)
        best = awake[0]
        wanted = best.num_draft_tokens + (1 if turn == 1 else -1)
        return Choice(best.source, min(max(wanted, 0), best.limit))


@dataclass(frozen=True)
class _Plan:
    """The best use of one offer."""

    source: str
    num_draft_tokens: int
    limit: int
    speedup: float


class _Source:
    """What is known of one source, and whether it rests."""

    def __init__(self, acceptance: AcceptanceTable) -> None:
        self.acceptance = acceptance
        self._resting = False
        self._wait = _FIRST_WAIT
        self._rested = self._probes_left = 0

    def awake(self, speedup: float) -> bool:
        """Whether to consider the source at this predicted speed-up; call once a round.

        Between the two thresholds the state stays what it is.
        """
        if self._resting and speedup > _LEAVE_REST:
            self._resting, self._wait, self._probes_left = False, _FIRST_WAIT, 0
        elif not self._resting and speedup < _ENTER_REST:
            self._resting = self.acceptance.rounds >= _MIN_EVIDENCE
            self._rested = 0
        return not self._resting or self._probe_now()

    def _probe_now(self) -> bool:
        """True in the few rounds in which a losing source gets another chance."""
        if self._probes_left == 0:
            self._rested += 1
            if self._rested <= self._wait:
                return False
            self._rested = 0
            self._wait = min(2 * self._wait, _LONGEST_WAIT)
            self._probes_left = _PROBE_ROUNDS
        self._probes_left -= 1
        return True


def _prior(source: str) -> float:
    """Acceptance to start from, high enough that a source is tried.

    A longer match is more often right: 1/2, 2/3, 3/4, ... for 2, 3, 4, ... tokens.
    """
    matched = source.rpartition(":")[2]
    return 1.0 - 1.0 / int(matched) if matched.isdigit() and int(matched) > 1 else 0.5
