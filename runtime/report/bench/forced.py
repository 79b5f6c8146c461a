"""Simulate a draft of a given acceptance, to know its speed-up before it is trained.

The draft engine really runs, K passes a round, and the target really verifies; only the drafted
tokens are replaced. A draft token is the target's own next token with probability A, and another
one otherwise, so the unchanged loop accepts each with chance A after those before it. The
target's greedy text is generated once beforehand. Costs are real and the text is the target's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from specdec.engines.engine import Engine
from specdec.runtime.drafting.drafter import DraftContext, ModelDrafter, Offer, Proposal
from specdec.runtime.sampling.distribution import Distribution

__all__ = ["ForcedDrafter"]


class ForcedDrafter(ModelDrafter):
    """A model drafter whose tokens are accepted with a set probability; greedy only.

    Attributes:
        text: prompt and greedy continuation of the target, in token ids.
    """

    def __init__(
        self, engine: Engine, acceptance: float, *, shares_cache: bool, seed: int = 0
    ) -> None:
        """Wrap a draft engine.

        Args:
            engine: the draft, whose passes set the cost.
            acceptance: A, 0 .. 1.
            shares_cache: as for `ModelDrafter`.
            seed: of the choice which tokens are right.
        """
        super().__init__(engine, shares_cache=shares_cache)
        self.text: Sequence[int] = ()
        self._acceptance = acceptance
        self._random = random.Random(seed)

    def propose(
        self, committed: Sequence[int], offer: Offer, max_tokens: int, context: DraftContext
    ) -> Proposal:
        """Run the draft `max_tokens` times; see `Drafter.propose`."""
        tokens: list[int] = []
        feed = self._missing(committed, context.meter)
        for position in range(len(committed), len(committed) + max_tokens):
            logits = context.meter.forward(
                "draft", self.engine, feed, 1, context.process.reduction
            )[0]
            context.process(logits, tokens, position)  # the same host work as a real draft
            tokens.append(self._forced(position, context.vocab_size))
            feed = tokens[-1:]
        distributions = tuple(Distribution.one_hot(token, context.vocab_size) for token in tokens)
        return Proposal(tuple(tokens), distributions)

    def _forced(self, position: int, vocab_size: int) -> int:
        right = self.text[position] if position < len(self.text) else 0
        return right if self._random.random() < self._acceptance else (right + 1) % vocab_size
