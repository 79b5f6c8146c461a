"""Drafting without a model: copy what followed the same words before.

The longest suffix of prompt and output (up to `max_match` tokens, at least `min_match`) that
occurred earlier is found through one hash table per length, at O(max_match) per committed
token; its most recent continuation is proposed. The distributions are one-hot, so any
verification rule stays exact: a token is kept with the target's own probability for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec.runtime.distribution import Distribution
from specdec.runtime.drafters import NOTHING, DraftContext, Drafter, Proposal

__all__ = ["HybridDrafter", "NgramDrafter"]

_UNLIMITED = 1 << 30


class NgramDrafter:
    """Prompt and output look-up."""

    def __init__(self, min_match: int = 2, max_match: int = 6) -> None:
        """Set the shortest and longest suffix to look for, 1 <= min_match <= max_match."""
        assert 1 <= min_match <= max_match
        self._sizes = range(max_match, min_match - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def room(self, committed_length: int) -> int:
        """No limit of its own."""
        return _UNLIMITED

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Index the prompt afresh."""
        self._ends = {}
        self._indexed = 0
        self._index(committed)

    def propose(self, committed: Sequence[int], max_tokens: int, context: DraftContext) -> Proposal:
        """Copy the continuation of the longest match; nothing when there is none."""
        start = self.find(committed)
        if start is None:
            return NOTHING
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

    def find(self, committed: Sequence[int]) -> int | None:
        """Where the most recent continuation of the longest matching suffix starts."""
        self._index(committed)
        length = len(committed)
        for size in self._sizes:
            if size < length:
                start = self._ends.get(tuple(committed[length - size :]))
                if start is not None:
                    return start
        return None

    def _index(self, committed: Sequence[int]) -> None:
        """Remember every n-gram that has a continuation, that is all but the last ones."""
        for end in range(max(self._indexed, 1), len(committed)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(committed[end - size : end])] = end
        self._indexed = max(len(committed), 1)


class HybridDrafter:
    """Look-up when a long enough match exists, else the model.

    The choice depends on committed tokens alone, so it cannot bias the output. A model with
    its own cache takes the tokens it missed in one pass when its turn comes.
    """

    def __init__(self, lookup: NgramDrafter, model: Drafter) -> None:
        self._lookup = lookup
        self._model = model

    def room(self, committed_length: int) -> int:
        """The look-up has no limit; the model's is applied in `propose`."""
        return self._lookup.room(committed_length)

    def prefill(self, committed: Sequence[int], context: DraftContext) -> None:
        """Prepare both."""
        self._lookup.prefill(committed, context)
        self._model.prefill(committed, context)

    def propose(self, committed: Sequence[int], max_tokens: int, context: DraftContext) -> Proposal:
        """Ask the look-up first."""
        found = self._lookup.propose(committed, max_tokens, context)
        if found.tokens:
            return found
        limit = min(max_tokens, self._model.room(len(committed)))
        return self._model.propose(committed, limit, context) if limit > 0 else NOTHING
