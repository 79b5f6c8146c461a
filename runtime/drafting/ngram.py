"""Drafting without a model: copy what followed the same words before.

The longest suffix of prompt and output (up to `max_match` tokens, at least `min_match`) that
occurred earlier is found through one hash table per length, at O(max_match) per committed
token; its most recent continuation is proposed. The distributions are one-hot, so any
verification rule stays exact: a token is kept with the target's own probability for it.

How often look-ups are right costs nothing to know: what one would have proposed is compared
with every token of the output, whoever drafted it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.runtime.drafting.acceptance import AcceptanceTable, lookup_acceptance
from specdec.runtime.drafting.drafter import (
    LOOKUP,
    NOTHING,
    DraftContext,
    Drafter,
    Offer,
    Proposal,
)
from specdec.runtime.sampling.distribution import Distribution

__all__ = ["HybridDrafter", "Match", "NgramDrafter"]

_UNLIMITED = 1 << 30
_TRUSTED_MATCH = 3
_LONGEST_COUNT = 24
"""Matches are counted up to this length, longer than what is looked up."""


@dataclass(frozen=True)
class Match:
    """The last `size` tokens occurred before, and were followed by what stands at `start`."""

    start: int
    size: int


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
        return () if match is None else (Offer(f"{LOOKUP}:{match.size}", _UNLIMITED),)

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Index the prompt afresh."""
        self._ends = {}
        self._indexed = 0
        self.acceptance.clear()
        self._judges = False
        self._index(committed)
        self._judges = True

    def propose(
        self, committed: Sequence[int], source: str, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Copy the continuation of the longest match; nothing when there is none."""
        match = self.find(committed)
        if match is None:
            return NOTHING
        text = committed[match.start : match.start + max_tokens]
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
    """A look-up beside a model: both offer, and the policy takes the one that pays more.

    The choice depends on committed tokens and past rounds alone, so it cannot bias the output.
    A model with its own cache takes the tokens it missed in one pass when its turn comes.
    """

    def __init__(self, lookup: NgramDrafter, model: Drafter, *, prefer_lookup: bool) -> None:
        """Combine two drafters.

        Args:
            lookup: offers when the text repeats.
            model: offers always.
            prefer_lookup: which comes first for a policy that does not weigh them: a look-up
                that matched enough tokens, or always the model.
        """
        self._lookup = lookup
        self._model = model
        self._prefer_lookup = prefer_lookup

    @property
    def acceptance(self) -> AcceptanceTable:
        """Of the look-up."""
        return self._lookup.acceptance

    def offers(self, committed: Sequence[int]) -> tuple[Offer, ...]:
        """Both; a short match is likelier wrong than the model, and never comes first."""
        lookup, model = self._lookup.offers(committed), self._model.offers(committed)
        match = self._lookup.find(committed) if self._prefer_lookup else None
        return lookup + model if match and match.size >= _TRUSTED_MATCH else model + lookup

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Prepare both."""
        self._lookup.prefill(committed, context)
        self._model.prefill(committed, context)

    def propose(
        self, committed: Sequence[int], source: str, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Ask the source the policy chose."""
        drafter = self._lookup if source.startswith(LOOKUP) else self._model
        return drafter.propose(committed, source, max_tokens, context)
