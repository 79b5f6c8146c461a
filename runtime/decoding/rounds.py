"""The round: propose, verify, commit, truncate, learn.

Between rounds the target's cache holds every committed token but the last, which is pending,
and each cache is a prefix of the committed ids (`caches`). A round drafts K tokens after the
pending one, scores K + 1 positions in one pass of the target, and commits the verified
prefix and one more token. With K = 0 it is a step of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from specdec.runtime.decoding.caches import Caches
from specdec.runtime.decoding.output import Output
from specdec.runtime.decoding.stats import Recorder
from specdec.runtime.drafting.draft_length import PLAIN, Choice, DraftLength, RoundOutcome
from specdec.runtime.drafting.drafter import NOTHING, DraftContext, Drafter, Offer, Proposal
from specdec.runtime.sampling.distribution import Distribution
from specdec.runtime.sampling.logprobs import TokenLogprobs, token_logprobs
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitRow, LogitsProcessor, full_row
from specdec.runtime.sampling.randomness import RoundRandom
from specdec.runtime.sampling.verify import Verifier

__all__ = ["LazyRows", "RoundLoop"]


class LazyRows:
    """The target's distributions of a round, each computed when first asked for."""

    def __init__(
        self,
        logits: Sequence[LogitRow],
        process: LogitsProcessor,
        drafted: Sequence[int],
        start: int,
    ) -> None:
        """Wrap K + 1 rows of logits; row i follows the first i drafted tokens."""
        self._logits = logits
        self._process = process
        self._drafted = drafted
        self._start = start
        self._rows: dict[int, Distribution] = {}

    def __len__(self) -> int:
        return len(self._logits)

    def __getitem__(self, index: int) -> Distribution:
        row = self._rows.get(index)
        if row is None:
            prefix = self._drafted[:index]
            row = self._process(self._logits[index], prefix, self._start + index)
            self._rows[index] = row
        return row


@dataclass
class RoundLoop:
    """The rounds of one generation, and all they use."""

    caches: Caches
    drafter: Drafter
    drafts: bool
    policy: DraftLength
    verifier: Verifier
    random: RoundRandom
    process: LogitsProcessor
    context: DraftContext
    history: TokenHistory
    output: Output
    recorder: Recorder
    prompt_length: int
    num_logprobs: int | None

    def play(self) -> None:
        """Run one round; a failure leaves every cache a prefix of the committed ids."""
        committed, target, meter = self.caches.ids, self.caches.target, self.recorder.meter
        start = len(committed)
        self.random.begin(start)
        began = perf_counter()
        try:
            offers = self._offers(committed)
            choice = self.policy.choose(offers) if offers else PLAIN
            draft = self._propose(committed, offers, choice)
            self.caches.forget_draft_rows()
            proposed = perf_counter()
            logits = meter.forward(
                "verify",
                target,
                [committed[-1], *draft.tokens],
                len(draft.tokens) + 1,
                None if self.num_logprobs is not None else self.process.reduction,
            )
            rows = LazyRows(logits, self.process, draft.tokens, start)
            verdict = self.verifier(rows, draft.draft_probs, draft.tokens, self.random)
            tokens = [*draft.tokens[: verdict.num_accepted], verdict.token]
            kept = self.output.add(tokens, verdict.num_accepted)
            self.output.add_logprobs(self._logprobs(logits, rows, tokens[:kept]))
            self.history.commit(tokens[:kept])
        finally:
            self.settle()
        evaluated = min(verdict.num_evaluated, kept)
        accepted = min(verdict.num_accepted, kept)
        self.recorder.add_round(len(draft.tokens), evaluated, accepted)
        self.policy.observe(
            RoundOutcome(
                drafted=len(draft.tokens),
                evaluated=evaluated,
                accepted=accepted,
                draft_seconds=proposed - began,
                verify_seconds=perf_counter() - proposed,
                source=choice.source,
            )
        )

    def settle(self) -> None:
        """Make the committed ids prompt plus output, and cut the caches back to them."""
        ids, kept = self.caches.ids, self.output.token_ids
        ids.extend(kept[len(ids) - self.prompt_length :])
        del ids[self.prompt_length + len(kept) :]
        self.caches.align()

    def _offers(self, committed: Sequence[int]) -> list[Offer]:
        """The drafter's offers, cut to the room in the target's context and in the output."""
        room = self.caches.target.info.max_length - len(committed)
        limit = min(room, self.output.num_wanted - 1)
        return [
            replace(offer, room=min(offer.room, limit))
            for offer in (self.drafter.offers(committed) if limit > 0 else ())
            if offer.room > 0
        ]

    def _propose(
        self, committed: Sequence[int], offers: Sequence[Offer], choice: Choice
    ) -> Proposal:
        if not choice.num_draft_tokens:
            return NOTHING
        offer = next(offer for offer in offers if offer.source == choice.source)
        return self.drafter.propose(committed, offer, choice.num_draft_tokens, self.context)

    def _logprobs(
        self, logits: Sequence[LogitRow], rows: LazyRows, tokens: Sequence[int]
    ) -> Iterator[TokenLogprobs]:
        if self.num_logprobs is not None:
            for i, token in enumerate(tokens):
                yield token_logprobs(full_row(logits[i]), rows[i], token, self.num_logprobs)
