"""Drafting without a model: copy what followed the same words before.

The longest suffix of prompt and output (up to `max_match` tokens, at least `min_match`) that
occurred earlier is found through one hash table per length, at O(max_match) per committed
token; its most recent continuation is proposed. The distributions are one-hot, so any
verification rule stays exact: a token is kept with the target's own probability for it.

Acceptance of look-ups is estimated from every token of the output, also from those of rounds in
which nothing or the draft model drafted: the token is compared with the one that a look-up would
have proposed.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.runtime.drafting.acceptance import AcceptanceTable, lookup_acceptance
from specdec.runtime.drafting.drafter import (
    LOOKUP,
    DraftContext,
    Drafter,
    Match,
    Offer,
    Proposal,
)
from specdec.runtime.sampling.distribution import Distribution

__all__ = ["HybridDrafter", "NgramDrafter"]

_UNLIMITED = 1 << 30
_TRUSTED_MATCH = 3
_LONGEST_COUNT = 24
"""The size of a match is counted up to this length, beyond the longest n-gram in the index."""


class NgramDrafter:
    """Prompt and output look-up.

    Attributes:
        acceptance: by the number of tokens that match, of this generation's output.
    """

    def __init__(self, min_match: int = 2, max_match: int = 6) -> None:
        """Set the shortest and longest suffix to look for, 1 <= min_match <= max_match."""
        assert 1 <= min_match <= max_match
        self._sizes = range(max_match, min_match - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        self._judges = False
        self.acceptance = lookup_acceptance()

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """A look-up, when the last tokens occurred before; it has no limit of its own."""
        match = self.find(committed)
        return () if match is None else (Offer(f"{LOOKUP}:{match.size}", _UNLIMITED, match),)

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Replace the index by one of the prompt, and reset the acceptance."""
        self._ends = {}
        self._indexed = 0
        self.acceptance.clear()
        self._judges = False
        self._index(committed)
        self._judges = True

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Copy the continuation of the match that was offered."""
        assert offer.match is not None
        start = offer.match.start
        text = committed[start : start + max_tokens]
        tokens: list[int] = []
        while len(tokens) < max_tokens:
            position = len(tokens)
            token = text[position] if position < len(text) else tokens[position - len(text)]
            tokens.append(token)
            if token in context.end_token_ids:
                break
        return Proposal(
            tuple(tokens), tuple(Distribution.one_hot(t, context.vocab_size) for t in tokens)
        )

    def find(self, committed: Sequence[int]) -> Match | None:
        """The longest suffix that occurred before, and its most recent continuation."""
        self._index(committed)
        return self._find(committed, len(committed))

    def _find(self, committed: Sequence[int], length: int) -> Match | None:
        """`find` after the first `length` tokens."""
        for size in self._sizes:
            if size < length:
                start = self._ends.get(tuple(committed[length - size : length]))
                if start is not None:
                    while (
                        size < min(start, _LONGEST_COUNT)
                        and committed[start - size - 1] == committed[length - size - 1]
                    ):
                        size += 1
                    return Match(start, size)
        return None

    def _index(self, committed: Sequence[int]) -> None:
        """Remember every n-gram that has a continuation, that is all but the last ones."""
        for end in range(max(self._indexed, 1), len(committed)):
            match = self._find(committed, end) if self._judges else None
            if match is not None:
                right = committed[match.start] == committed[end]
                self.acceptance.observe(1, int(right), match.size)
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(committed[end - size : end])] = end
        self._indexed = max(len(committed), 1)


class HybridDrafter:
    """A look-up and a model: both offer, and the policy takes the one with more tokens per second.

    The choice depends on committed tokens and past rounds alone, so it cannot bias the output.
    A model with its own cache takes the tokens it missed in one pass when its turn comes.
    """

    def __init__(self, lookup: NgramDrafter, model: Drafter, *, prefer_lookup: bool) -> None:
        """Combine two drafters.

        Args:
            lookup: offers only when the last tokens occurred before.
            model: offers always.
            prefer_lookup: the order for a policy that takes the first offer: True puts a look-up
                that matched 3 tokens or more before the model, False always the model first.
        """
        self._lookup = lookup
        self._model = model
        self._prefer_lookup = prefer_lookup

    @property
    def acceptance(self) -> AcceptanceTable:
        """Acceptance of the look-up by the number of tokens that match."""
        return self._lookup.acceptance

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """Both; a match of few tokens comes after the model, which is right more often."""
        lookup, model = self._lookup.offers(committed), self._model.offers(committed)
        match = lookup[0].match if lookup and self._prefer_lookup else None
        return lookup + model if match and match.size >= _TRUSTED_MATCH else model + lookup

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Prepare both."""
        self._lookup.prefill(committed, context)
        self._model.prefill(committed, context)

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Draft with the look-up or the model, whichever made `offer`."""
        drafter = self._model if offer.match is None else self._lookup
        return drafter.propose(committed, offer, max_tokens, context)
