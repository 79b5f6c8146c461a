"""`SpeculativeDecoder`: a target, a draft, and everything a host calls.

with SpeculativeDecoder.load("package") as decoder:
    print(decoder.generate("Hello", SamplingParams(max_new_tokens=32)).text)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from specdec.engines.engine import Engine
from specdec.engines.forking import check_same_process, forked_since
from specdec.engines.load import LoadedPackage, load_package
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.parts import DrafterName, Parts
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.decoding.session import Session
from specdec.runtime.decoding.single_stream import SingleStream
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.drafting.drafter import Drafter
from specdec.runtime.errors import ClosedError
from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.params import SamplingParams
from specdec.runtime.sampling.randomness import RoundRandom
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import Prompt, PromptReader
from specdec.runtime.wiring import package_arguments

__all__ = ["SpeculativeDecoder"]


class SpeculativeDecoder(Closing):
    """Generates text whose distribution is exactly the target's own, several tokens a pass.

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
        self._prompts = PromptReader(codec, chat, bos_token_id, info.vocab_size, info.max_length)
        self._process = os.getpid()
        self._engines = [target] if draft is None else [draft, target]
        self._on_close = on_close
        self._single = SingleStream()
        self._closed = False

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        device: str = "cpu",
        draft_device: str | None = None,
        verify_checksums: bool = True,
        num_threads: int | None = None,
        drafter: DrafterName = "auto",
        chat_template: str | None = None,
        ort: OrtOptions = DEFAULT_ORT_OPTIONS,
    ) -> SpeculativeDecoder:
        """Load a package directory written by `specdec-export`.

        Args:
            device: "cpu" or "cuda:N", for the target.
            draft_device: the same for the draft; None is `device`.
            verify_checksums: hash every file before use.
            num_threads: threads an engine may use; None lets the backend choose.
            drafter: as in the constructor.
            chat_template: name of the package's chat template to use; None takes `tool_use` for
                requests with tools, where there is one, else `default`.
            ort: how engines on ONNX Runtime run: CUDA graphs, memory, logits reduced on the device.

        Raises:
            PackageError: the directory is not a sound package.
            MissingDependencyError: the backend's library is not installed.
            DeviceError: a device is not available.
            EngineError: a backend failed to load a graph.
        """
        package = load_package(
            Path(path),
            device=device,
            draft_device=draft_device,
            verify_checksums=verify_checksums,
            num_threads=num_threads,
            load_draft=drafter not in ("ngram", "none"),
            ort=ort,
        )
        try:
            return cls.from_package(package, drafter=drafter, chat_template=chat_template)
        except BaseException:
            package.close()
            raise

    @classmethod
    def from_package(
        cls,
        package: LoadedPackage,
        *,
        drafter: DrafterName | Drafter = "auto",
        chat_template: str | None = None,
        owns: bool = True,
    ) -> SpeculativeDecoder:
        """Wire the engines, tokenizer and chat template of a loaded package together.

        Args:
            package: its engines serve one decoder at a time.
            drafter: as in the constructor.
            chat_template: as in `load`.
            owns: closing the decoder closes the package.

        Raises:
            InvalidParameterError: there is no chat template of this name.
        """
        return cls(
            package.target,
            package.draft,
            drafter=drafter,
            on_close=package.close if owns else lambda: None,
            **package_arguments(package, chat_template),
        )

    @property
    def max_length(self) -> int:
        """Context of the target in tokens, prompt and output together."""
        return self._parts.target.info.max_length

    @property
    def has_chat_template(self) -> bool:
        """True when prompts may be messages."""
        return self._prompts.has_chat_template

    @property
    def defaults(self) -> ModelDefaults:
        """What the model's package bans, and the sampling options it names."""
        return self._parts.defaults

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
        return self.stream(prompt, params, **named, reuse_prefix=reuse_prefix).drain()

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
        named: dict[str, Any] = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        return self.open_stream(prompt, params or SamplingParams(), **named, reuse=reuse_prefix)

    def session(self) -> Session:
        """A conversation that keeps the cache between its turns."""
        self.check_open()
        return Session(self)

    def cancel(self) -> None:
        """End the open generation, if any, after its present round; from any thread."""
        self._single.cancel()

    def close(self) -> None:
        """Close an open stream and release the engines. Idempotent.

        Raises:
            BusyError: another thread is inside a generation; it was asked to end.
        """
        if self._closed:
            return
        if forked_since(self._process):  # the engines are the parent's
            self._mark_closed()
            return
        self._single.close(self._mark_closed)
        if self._on_close is not None:
            self._on_close()
            return
        for engine in self._engines:
            engine.close()

    def _mark_closed(self) -> None:
        self._closed = True

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
        """Token ids of a prompt, however long (`PromptReader.encode`)."""
        return self._prompts.encode(prompt, tools, chat_template_kwargs)

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
        return self._single.open(generation, self.check_open, on_end)
