"""Choose the source of the next round's draft and its length K.

A round with K tokens drafted by one source commits E(K) tokens (`acceptance`) and costs
K d + T(K + 1), with d the draft model's time per token (`costs`; a look-up takes none). The
adaptive policy takes the source and the K with the most expected tokens per second, or a plain
step. Only rounds that are played give measurements, so up to 1 % of the time is spent on
exploration: a draft model that is predicted to lose is tried again, and a plain step is timed
while the uncertainty of its cost could change the choice.

Source and K are chosen before anything of the round is sampled, from committed tokens and past
rounds only: the choice cannot bias the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from specdec.runtime.drafting.acceptance import AcceptanceTable, lookup_acceptance
from specdec.runtime.drafting.costs import Costs, Vector
from specdec.runtime.drafting.drafter import MODEL, Offer

__all__ = [
    "PLAIN",
    "AdaptiveLength",
    "Choice",
    "DraftLength",
    "FixedLength",
    "RoundOutcome",
    "Savings",
]

_SPARE_SHARE = 0.01
"""Share of the time that exploration may cost."""
_LEAST_LOSS = 0.2
"""Least loss charged for an exploring round, as a share of its time."""
_WORTH = 1.03
"""Least predicted speed-up at which drafts are used; less is within the error of prediction."""
_DOUBTS = 2.0
"""A plain step is timed while this many standard deviations of T(1) would change the choice."""


@dataclass(frozen=True)
class Choice:
    """A source and how many tokens it drafts; 0 tokens are a plain step."""

    source: str
    num_draft_tokens: int


PLAIN = Choice("", 0)


@dataclass(frozen=True)
class RoundOutcome:
    """Counts and seconds of one round, host work included, for the policy to learn from."""

    drafted: int
    evaluated: int
    accepted: int
    draft_seconds: float
    verify_seconds: float
    source: str = MODEL


class DraftLength(Protocol):
    """Policy that chooses the source of a draft and its number of tokens."""

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
    """A fixed number of tokens, cut to the room, from the first source that offers."""

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


@dataclass
class Savings:
    """Seconds that exploration may cost; grows with every round."""

    seconds: float = 0.0


class AdaptiveLength:
    """Maximises expected tokens per second.

    Args:
        costs: d and T(M).
        acceptance: of the draft model, shared between generations when learning from the
            clock.
        lookups: acceptance of look-ups that the drafter updates; None estimates it here, from
            the rounds that used a look-up.
        context: tokens of the prompt.
        savings: shared between generations when learning from the clock, so that short ones can
            afford exploration too.
        max_draft_tokens: largest K considered.
        use_clock: False freezes the costs, which makes the choice, and with a seed the text,
            a function of the tokens alone.
    """

    def __init__(
        self,
        costs: Costs,
        acceptance: AcceptanceTable | None = None,
        *,
        lookups: AcceptanceTable | None = None,
        context: int = 0,
        savings: Savings | None = None,
        max_draft_tokens: int = 16,
        use_clock: bool = True,
    ) -> None:
        self._costs = costs
        self._max = max_draft_tokens
        self._use_clock = use_clock
        self._context = context
        self._model = acceptance or AcceptanceTable()
        self._learns_lookups = lookups is None
        self._lookups = lookups or lookup_acceptance()
        self._savings = savings or Savings()
        self._plain_speedup: float | None = None

    @property
    def fallback(self) -> str | None:
        """Set while no offered source is predicted to be faster than plain decoding."""
        if self._plain_speedup is None:
            return None
        return f"drafting is predicted to run at {self._plain_speedup:.2f} times the plain speed"

    def choose(self, offers: Sequence[Offer]) -> Choice:
        """The source and K with the most tokens per second, or an exploring round."""
        offers = [offer for offer in offers if min(offer.room, self._max) > 0]
        if not offers:
            return PLAIN
        room = min(max(offer.room for offer in offers), self._max)
        verify = self._costs.verify(room + 1, self._context)
        plans = [self._plan(offer, verify) for offer in offers]
        plain = _Plan(PLAIN, 1.0, float(verify[0]))
        drafted = max(plans, key=_Plan.rate)
        self._plain_speedup = None
        if drafted.rate() < _WORTH * plain.rate():
            self._plain_speedup = drafted.rate() / plain.rate()
        best = drafted if self._plain_speedup is None else plain
        return self._afford(best, self._exploration(best, plain, plans)).choice

    def observe(self, outcome: RoundOutcome) -> None:
        """Update acceptance, and costs when the clock is used."""
        if outcome.drafted and outcome.source == MODEL:
            self._model.observe(outcome.evaluated, outcome.accepted)
        elif outcome.drafted and self._learns_lookups:
            self._lookups.observe(outcome.evaluated, outcome.accepted, _matched(outcome.source))
        if self._use_clock:
            if outcome.drafted and outcome.source == MODEL:
                seconds = outcome.draft_seconds / outcome.drafted
                self._costs.measure_draft(seconds, self._context)
            self._costs.measure_verify(outcome.drafted + 1, outcome.verify_seconds, self._context)
        self._context += outcome.accepted + 1

    def _plan(self, offer: Offer, verify: Vector) -> _Plan:
        """The best K of one offer."""
        limit = min(offer.room, self._max)
        if offer.source == MODEL:
            tokens, draft = self._model.expected_tokens(limit), self._costs.draft(self._context)
        else:
            tokens, draft = self._lookups.expected_tokens(limit, _matched(offer.source)), 0.0
        plans = (
            _Plan(Choice(offer.source, k), tokens[k], k * draft + float(verify[k]))
            for k in range(1, limit + 1)
        )
        return max(plans, key=_Plan.rate)

    def _exploration(self, best: _Plan, plain: _Plan, plans: Sequence[_Plan]) -> _Plan | None:
        """A plan other than the best whose measurement could change later choices, or None."""
        if best is plain:
            return next((plan for plan in plans if plan.choice.source == MODEL), None)
        margin = 1.0 + _DOUBTS * self._costs.doubt(self._context)
        return plain if self._use_clock and best.rate() < margin * plain.rate() else None

    def _afford(self, best: _Plan, exploration: _Plan | None) -> _Plan:
        """The exploration when the savings cover its expected loss, else the best."""
        self._savings.seconds += _SPARE_SHARE * best.seconds
        if exploration is not None:
            loss = exploration.seconds - exploration.tokens / best.rate()
            loss = max(loss, _LEAST_LOSS * exploration.seconds)
            if loss <= self._savings.seconds:
                self._savings.seconds -= loss
                return exploration
        return best


@dataclass(frozen=True)
class _Plan:
    """A round that could be played, with its expected tokens and seconds."""

    choice: Choice
    tokens: float
    seconds: float

    def rate(self) -> float:
        return self.tokens / self.seconds


def _matched(source: str) -> int:
    """Tokens that a look-up matched, from the name of its source."""
    size = source.rpartition(":")[2]
    return int(size) if size.isdigit() else 0
