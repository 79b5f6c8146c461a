"""Drafters: sources of the tokens that the target verifies.

A drafter proposes tokens together with the very distributions they were drawn from. It may
stop early, but only before drawing a token or after including it: drawing a token and then
dropping it for being improbable would bias the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specdec.engines.engine import Engine
from specdec.runtime.errors import NoTokenLeftError
from specdec.runtime.meter import Meter, chunk_size, prefill
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.randomness import RoundRandom

__all__ = [
    "LOOKUP",
    "MODEL",
    "NOTHING",
    "DraftContext",
    "Drafter",
    "Match",
    "ModelDrafter",
    "NoDrafter",
    "Offer",
    "Proposal",
]

MODEL = "model"
"""Name of the draft model as a source of drafted tokens."""
LOOKUP = "lookup"
"""A look-up that matched the last N tokens is the source "lookup:N"."""


@dataclass(frozen=True)
class Match:
    """The last `size` committed tokens occurred before; their continuation begins at `start`."""

    start: int
    size: int


@dataclass(frozen=True)
class Offer:
    """A source of drafted tokens that the next round could use."""

    source: str
    """`MODEL` or "lookup:N"."""
    room: int
    """How many tokens it can draft; none when <= 0."""
    match: Match | None = None
    """What a look-up found in the committed tokens; None for a model."""


@dataclass(frozen=True)
class Proposal:
    """K drafted tokens and the K distributions they were drawn from."""

    tokens: tuple[int, ...] = ()
    draft_probs: tuple[Distribution, ...] = ()


NOTHING = Proposal()


@dataclass(frozen=True)
class DraftContext:
    """Options, randomness and counters of one generation, as a drafter needs them."""

    process: LogitsProcessor
    """Logits to distribution, with the draft's temperature."""
    random: RoundRandom
    end_token_ids: frozenset[int]
    """Tokens after which nothing more is drafted."""
    vocab_size: int
    meter: Meter
    cancelled: Callable[[], bool] = bool


class Drafter(Protocol):
    """Proposes tokens. The loop keeps the caches; a drafter only appends to its own."""

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """The sources that could draft after `committed`, the preferred one first."""
        ...

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """A generation begins after these prompt ids; the last one is pending."""
        ...

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Draft 0 .. `max_tokens` tokens after `committed` from the source of `offer`.

        Args:
            committed: token ids of prompt and output.
            offer: one that `offers` returned for the same `committed`.
            max_tokens: 1 .. `offer.room`.
            context: of this generation.
        """
        ...


class NoDrafter:
    """Plain decoding."""

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """Never any."""
        return ()

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Nothing to prepare."""

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Never anything."""
        return NOTHING


class ModelDrafter:
    """A draft model, with a cache of its own or on the target's.

    With its own cache the draft prefills itself, and in each round first takes the committed
    tokens it lacks in one pass: usually the pending token alone, after a fully accepted
    round the last drafted token and the bonus together. On the target's cache there is
    nothing to catch up: the length is the target's.
    """

    def __init__(self, engine: Engine, *, shares_cache: bool = False) -> None:
        self.engine = engine
        self.shares_cache = shares_cache

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """The model, with the tokens that fit: the last drafted one is never fed to it."""
        return (Offer(MODEL, self.engine.info.max_length - len(committed) + 1),)

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Feed the prompt, unless it does not fit or the target does it."""
        if not self.shares_cache and self.offers(committed)[0].room > 0:
            missing = committed[self.engine.length : len(committed) - 1]
            prefill(self.engine, missing, context.meter, "prefill", context.cancelled)

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Draw tokens one by one; an end token is included and ends the draft.

        A position where the caller's bans leave the draft no token ends it too.
        """
        tokens: list[int] = []
        draft_probs: list[Distribution] = []
        feed = self._missing(committed, context.meter)
        while True:
            logits = context.meter.forward(
                "draft", self.engine, feed, 1, context.process.reduction
            )[0]
            try:
                distribution = context.process(logits, tokens, len(committed) + len(tokens))
            except NoTokenLeftError:
                break
            token = context.random.draft(len(tokens), distribution)
            tokens.append(token)
            draft_probs.append(distribution)
            if len(tokens) == max_tokens or token in context.end_token_ids:
                break
            feed = [token]
        return Proposal(tuple(tokens), tuple(draft_probs))

    def _missing(self, committed: Sequence[int], meter: Meter) -> Sequence[int]:
        """Committed tokens not yet in the cache; a long backlog is fed down to the last."""
        missing = committed[self.engine.length :]
        if len(missing) > chunk_size(self.engine):
            prefill(self.engine, missing[:-1], meter, "draft")
            return missing[-1:]
        return missing
