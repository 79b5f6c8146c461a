"""One generation: built from a decoder's parts, then advanced chunk by chunk."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from time import perf_counter

from specdec.engines.forking import check_same_process
from specdec.runtime.decoding.output import Output
from specdec.runtime.decoding.parts import Parts
from specdec.runtime.decoding.results import Chunk, GenerationResult
from specdec.runtime.decoding.rounds import RoundLoop
from specdec.runtime.decoding.stats import Recorder
from specdec.runtime.drafting.draft_length import (
    AdaptiveLength,
    DraftLength,
    FixedLength,
)
from specdec.runtime.drafting.drafter import DraftContext, NoDrafter
from specdec.runtime.meter import prefill
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.penalties import TokenHistory
from specdec.runtime.sampling.processing import LogitsProcessor
from specdec.runtime.sampling.verify import VERIFIERS
from specdec.runtime.text.output_text import OutputText

__all__ = ["Generation"]


class Generation:
    """Drives the rounds of one request; not thread-safe except for `cancel`."""

    def __init__(
        self,
        parts: Parts,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        reuse: bool,
        prompt_cut: str | None = None,
    ) -> None:
        """Prepare a generation without running an engine.

        Args:
            prompt_ids: checked ids, at least one.
            reuse: keep what the caches share with the prompt (sessions).
            prompt_cut: what a truncation dropped of the prompt, in one line.

        Raises:
            InvalidParameterError: an option does not fit the vocabulary.
        """
        self.prompt_ids = tuple(prompt_ids)
        self._prompt_cut = prompt_cut
        self._process = os.getpid()
        self._parts = parts
        self._reuse = reuse
        self._cancelled = threading.Event()
        self._started = False
        self._recorder = Recorder(parts.target.info.engine)
        self._loop = self._build(params)

    def cancel(self) -> None:
        """Ask to stop after the round in progress; may be called from any thread."""
        self._cancelled.set()

    def next_chunk(self) -> Chunk:
        """Run rounds until a chunk can be released or the generation has ended."""
        check_same_process(self._process)
        began = perf_counter()
        output = self._loop.output
        try:
            if not self._started:
                self._started = True
                self._prefill()
            while True:
                if output.finish_reason is None:
                    self._play_or_end(began)
                if output.finish_reason is not None:
                    self._note_fallback()
                chunk = output.take()
                if chunk.text or chunk.token_ids or chunk.finish_reason:
                    return chunk
        finally:
            self._recorder.active_seconds += perf_counter() - began

    def stop(self) -> None:
        """End now as cancelled unless already ended, and bring ids and caches in line."""
        self._loop.output.finish("cancelled")
        if self._started:
            self._loop.settle()

    def result(self) -> GenerationResult:
        """The outcome of an ended generation."""
        output = self._loop.output
        assert output.finish_reason is not None
        return GenerationResult(
            text=output.text,
            token_ids=tuple(output.token_ids),
            finish_reason=output.finish_reason,
            logprobs=output.logprobs,
            stats=self._recorder.stats(len(self.prompt_ids), len(output.token_ids)),
            prompt_token_ids=self.prompt_ids,
            prompt_cut=self._prompt_cut,
        )

    def _play_or_end(self, began: float) -> None:
        """Run a round unless the generation is over; cancellation is checked before and after."""
        output, caches = self._loop.output, self._loop.caches
        if not self._cancelled.is_set():
            if len(caches.ids) > caches.target.info.max_length:
                output.finish("context")
            else:
                self._play(began)
        if self._cancelled.is_set():
            output.finish("cancelled")
        if output.finish_reason is not None:
            self._loop.settle()

    def _play(self, began: float) -> None:
        first = not self._loop.output.token_ids
        self._loop.play()
        if first:
            seconds = self._recorder.active_seconds + perf_counter() - began
            self._recorder.first_token_seconds = seconds

    def _prefill(self) -> None:
        caches, loop = self._parts.caches, self._loop
        caches.restart(self.prompt_ids, self._reuse)
        missing = caches.ids[caches.target.length : -1]
        meter, cancelled = self._recorder.meter, self._cancelled.is_set
        if prefill(caches.target, missing, meter, "prefill", cancelled):
            loop.drafter.prefill(caches.ids, loop.context)

    def _note_fallback(self) -> None:
        loop = self._loop
        if self._recorder.fallback is None and self._parts.has_drafter:
            if loop.policy.fallback is not None:
                self._recorder.fallback = loop.policy.fallback
            elif loop.drafts and self._draft_is_full():
                self._recorder.fallback = "the draft's context is full"

    def _draft_is_full(self) -> bool:
        """True when the draft has no room and a longer context would have given it some."""
        ids = self._loop.caches.ids
        offers = self._loop.drafter.offers(ids)
        room = max((offer.room for offer in offers), default=1)
        return room <= 0 and room <= self._parts.target.info.max_length - len(ids)

    def _build(self, params: SamplingParams) -> RoundLoop:
        parts, info = self._parts, self._parts.target.info
        eos = frozenset() if params.ignore_eos else parts.eos_token_ids
        ends = eos | frozenset(params.stop_token_ids)
        history = TokenHistory(params, info.vocab_size, ends, self.prompt_ids, parts.defaults)
        random = parts.make_random(params)
        drafts = parts.has_drafter and params.num_draft_tokens != 0
        context = DraftContext(
            process=LogitsProcessor(
                params,
                history,
                vocab_size=info.vocab_size,
                engine_name="draft",
                temperature=params.draft_temperature,
            ),
            random=random,
            end_token_ids=ends,
            vocab_size=info.vocab_size,
            meter=self._recorder.meter,
            cancelled=self._cancelled.is_set,
        )
        return RoundLoop(
            caches=parts.caches,
            drafter=parts.drafter if drafts else NoDrafter(),
            drafts=drafts,
            policy=self._policy(params),
            verifier=VERIFIERS[params.verify],
            random=random,
            process=LogitsProcessor(
                params, history, vocab_size=info.vocab_size, engine_name="target"
            ),
            context=context,
            history=history,
            output=Output(params, ends, self._text(params)),
            recorder=self._recorder,
            prompt_length=len(self.prompt_ids),
            num_logprobs=params.logprobs,
        )

    def _text(self, params: SamplingParams) -> OutputText | None:
        codec = self._parts.codec
        if codec is None:
            return None
        return OutputText(codec, params.stop, params.skip_special_tokens, self.prompt_ids)

    def _policy(self, params: SamplingParams) -> DraftLength:
        """Fixed or adaptive; where the text of a seed depends on K, measured times must not."""
        parts = self._parts
        if params.num_draft_tokens != "auto":
            return FixedLength(params.num_draft_tokens)
        lookups = getattr(parts.drafter, "acceptance", None)
        context = len(self.prompt_ids)
        text_depends = not params.greedy and params.verify != "coupled"
        if text_depends and params.seed is not None:
            costs = parts.seed_costs.fresh()
            return AdaptiveLength(costs, lookups=lookups, context=context, use_clock=False)
        return AdaptiveLength(
            parts.costs,
            parts.acceptance,
            lookups=lookups,
            context=context,
            savings=parts.savings,
        )
