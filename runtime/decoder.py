"""`SpeculativeDecoder`: generate text with a target and a draft."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specdec.engines.engine import Engine
from specdec.engines.forking import check_same_process, forked_since
from specdec.runtime.checks import check_bool
from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.parts import DrafterName, Parts
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.decoding.session import Session
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.drafting.drafter import Drafter
from specdec.runtime.errors import BusyError, ClosedError
from specdec.runtime.package_loading import PackageLoading
from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.params import SamplingParams, checked_params
from specdec.runtime.sampling.randomness import RoundRandom
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.maker import PromptMaker
from specdec.runtime.text.prompts import Prompt, PromptReader
from specdec.runtime.turns import LastTurn, Turns

__all__ = ["SpeculativeDecoder"]


class SpeculativeDecoder(PackageLoading, Closing):
    """Generates text whose distribution is exactly the target's, several tokens a target pass.

    One generation at a time; `cancel` may be called from another thread.
    """

    def __init__(
        self,
        target: Engine,
        draft: Engine | None = None,
        *,
        shares_cache: bool = False,
        codec: TextCodec | None = None,
        chat: ChatTemplate | None = None,
        eos_token_ids: Iterable[int] = (),
        bos_token_id: int | None = None,
        defaults: ModelDefaults = NO_DEFAULTS,
        drafter: DrafterName | Drafter = "auto",
        costs: Mapping[str, Any] | None = None,
        make_random: Callable[[SamplingParams], RoundRandom] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        """Build a decoder over any engines; it owns and closes them.

        Args:
            target: the model whose distribution the output follows.
            draft: a cheaper model with the same vocabulary, or None.
            shares_cache: the draft reads and writes the target's cache: one length for both.
            codec: tokenizer; without one, prompts are ids and there is no text.
            chat: template for prompts that are messages.
            eos_token_ids: the model's end tokens.
            bos_token_id: the token that begins a text; a truncated prompt keeps it.
            defaults: what the model's package bans, and its sampling options.
            drafter: "model" (the draft), "ngram" (look-up in prompt and output), "hybrid"
                (a look-up that matches 3 tokens or more first, else the draft), "none";
                "auto" is "ngram" without a draft, and with one weighs both in each round, or
                uses the draft alone when the number of drafted tokens is fixed. Or a
                `Drafter` of your own.
            costs: measured seconds that the "auto" draft length starts from, see
                `CostTable.from_mapping`.
            make_random: replaces the source of randomness.
            on_close: called instead of closing the engines.

        Raises:
            InvalidParameterError: the models do not fit together, or `drafter` needs a draft.
        """
        self._parts = Parts.assemble(
            target,
            draft,
            drafter=drafter,
            shares_cache=shares_cache,
            codec=codec,
            eos_token_ids=eos_token_ids,
            costs=costs,
            make_random=make_random,
            defaults=defaults,
        )
        info = target.info
        self._prompts = PromptMaker(
            PromptReader(codec, chat, bos_token_id, info.vocab_size, info.max_length)
        )
        self._process = os.getpid()
        self._engines = [target] if draft is None else [draft, target]
        self._on_close = on_close
        self._turns = Turns()  # of the streams, one at a time
        self._last_turn = LastTurn()  # of `close`
        self._closed = False

    @property
    def max_length(self) -> int:
        """Context of the target in tokens, prompt and output together."""
        return self._parts.target.info.max_length

    @property
    def defaults(self) -> ModelDefaults:
        """What the model's package bans, and the sampling options it names."""
        return self._parts.defaults

    @property
    def has_chat_template(self) -> bool:
        """True when prompts may be messages."""
        return self._prompts.has_template

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        reuse_prefix: bool = False,
    ) -> GenerationResult:
        """Generate and wait for the end.

        Args:
            prompt: text, token ids, or chat messages.
            params: None is greedy with 128 new tokens.
            tools: tool descriptions for the chat template.
            chat_template_kwargs: further variables of the chat template, such as
                `{"enable_thinking": False}`.
            reuse_prefix: start from what the cache still holds of a common prefix, such as a
                long system prompt, instead of from an empty cache. Saves its prefill; logits
                may then round differently from those of a fresh run.

        Raises:
            PromptError: the prompt is empty, too long, or not understood.
            InvalidParameterError: an option is illegal or cannot be honoured here.
            BusyError: another generation is open.
            NumericalError: the model gave NaN or infinite logits.
        """
        named: dict[str, Any] = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        with self.stream(prompt, params, **named, reuse_prefix=reuse_prefix) as stream:
            return stream.drain()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        reuse_prefix: bool = False,
    ) -> GenerationStream:
        """The same, chunk by chunk; closing the stream cancels it. Raises as `generate`."""
        checked = checked_params(params)
        check_bool("reuse_prefix", reuse_prefix)
        named: dict[str, Any] = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        return self.open_stream(prompt, checked, **named, reuse=reuse_prefix)

    def session(self) -> Session:
        """A conversation that keeps the cache between its turns."""
        self.check_open()
        return Session(self)

    def cancel(self) -> None:
        """End the open generation, if any, after its present round; from any thread.

        A prompt that is being made from messages ends too; its call raises `NotBegunError`.
        """
        self._prompts.cancel()
        stream = self._open_stream()
        if stream is not None:
            stream.cancel()

    def close(self) -> None:
        """Close an open stream and release the engines. Idempotent.

        Raises:
            BusyError: another thread is inside a generation; it was asked to end.
        """
        if self._closed:
            return
        if forked_since(self._process):  # the engines are the parent's
            self._closed = True
            return
        self._prompts.cancel()
        stream = self._open_stream()
        if stream is not None:
            stream.close()
        if not self._turns.take(self._last_turn):
            raise _busy()
        self._closed = True
        if self._on_close is not None:
            self._on_close()
            return
        for engine in self._engines:
            engine.close()

    def described(self) -> str:
        """Its models, or "closed"."""
        return "closed" if self._closed else self._parts.described()

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`, and `ForkedError` in a fork of the process."""
        check_same_process(self._process)
        if self._closed:
            raise ClosedError("the decoder is closed; load it again")

    def encode(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a prompt, however long (`PromptMaker.make`)."""
        return self._prompts.make(prompt, tools, chat_template_kwargs)

    def open_stream(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        after: Sequence[int] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        reuse: bool = False,
        on_end: Callable[[GenerationResult, bool], None] | None = None,
    ) -> GenerationStream:
        """Open a stream over the ids `after` and a prompt that continues them.

        `reuse` keeps the shared prefix that is cached; `on_end` gets the result and whether the
        generation failed.
        """
        self.check_open()
        self._parts.check_supported(params)
        fitted = self._prompts.read(prompt, params, after, tools, chat_template_kwargs)
        generation = Generation(self._parts, fitted.ids, params, reuse, fitted.cut)
        stream = GenerationStream(generation, on_end)
        if not self._turns.take(stream):
            self.check_open()  # a closed decoder has its last turn for good
            raise _busy()
        return stream

    def _open_stream(self) -> GenerationStream | None:
        holder = self._turns.holder()
        return holder if isinstance(holder, GenerationStream) else None


def _busy() -> BusyError:
    return BusyError("a generation is open on this decoder; finish or close its stream first")
