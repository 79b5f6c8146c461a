"""`SpeculativeDecoder`: generate text with a target and a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

from specdec.engines.engine import Engine
from specdec.engines.load import LoadedPackage, load_package
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.runtime.checks import check_bool
from specdec.runtime.closing import Closing
from specdec.runtime.decoding.generation import Generation
from specdec.runtime.decoding.parts import DrafterName, Parts
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.decoding.session import Session
from specdec.runtime.decoding.stream import GenerationStream
from specdec.runtime.drafting.drafter import Drafter
from specdec.runtime.errors import BusyError, ClosedError
from specdec.runtime.load_arguments import check_load_arguments
from specdec.runtime.sampling.params import SamplingParams, checked_params
from specdec.runtime.sampling.randomness import RoundRandom
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.maker import PromptMaker
from specdec.runtime.text.prompts import Prompt, fit_prompt
from specdec.runtime.turns import LastTurn, Turns

__all__ = ["SpeculativeDecoder"]


class SpeculativeDecoder(Closing):
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
        )
        self._prompts = PromptMaker(codec, chat)
        self._engines = [target] if draft is None else [draft, target]
        self._on_close = on_close
        self._turns = Turns()  # of the streams, one at a time
        self._last_turn = LastTurn()  # of `close`
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
        ort: OrtOptions = DEFAULT_ORT_OPTIONS,
    ) -> SpeculativeDecoder:
        """Load a package directory written by `specdec-export`.

        Args:
            path: the directory.
            device: "cpu" or "cuda:N", for the target.
            draft_device: the same for the draft; None is `device`.
            verify_checksums: hash every file before use.
            num_threads: threads an engine may use; None lets the backend choose.
            drafter: as in the constructor.
            ort: how engines on ONNX Runtime run: CUDA graphs, memory, logits reduced on the device.

        Raises:
            InvalidParameterError: an argument has an illegal type or value.
            PackageError: the directory is not a sound package.
            MissingDependencyError: the backend's library is not installed.
            DeviceError: a device is not available.
            EngineError: a backend failed to load a graph.
        """
        check_load_arguments(verify_checksums, num_threads, drafter, ort)
        package = load_package(
            path,
            device=device,
            draft_device=draft_device,
            verify_checksums=verify_checksums,
            num_threads=num_threads,
            load_draft=drafter not in ("ngram", "none"),
            ort=ort,
        )
        try:
            return cls.from_package(package, drafter=drafter)
        except BaseException:
            package.close()
            raise

    @classmethod
    def from_package(
        cls,
        package: LoadedPackage,
        *,
        drafter: DrafterName | Drafter = "auto",
        owns: bool = True,
    ) -> SpeculativeDecoder:
        """Wire the engines, tokenizer and chat template of a loaded package together.

        Args:
            package: its engines serve one decoder at a time.
            drafter: as in the constructor.
            owns: closing the decoder closes the package.
        """
        template = package.chat_template
        return cls(
            package.target,
            package.draft,
            shares_cache=package.draft_shares_cache,
            codec=TextCodec(package.tokenizer_path),
            chat=None if template is None else ChatTemplate(template, package.special_tokens),
            eos_token_ids=package.manifest.tokenizer.eos_token_ids,
            drafter=drafter,
            costs=package.manifest.costs,
            on_close=package.close if owns else lambda: None,
        )

    @property
    def max_length(self) -> int:
        """Context of the target in tokens, prompt and output together."""
        return self._parts.target.info.max_length

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
        reuse_prefix: bool = False,
    ) -> GenerationResult:
        """Generate and wait for the end.

        Args:
            prompt: text, token ids, or chat messages.
            params: None is greedy with 128 new tokens.
            tools: tool descriptions for the chat template.
            reuse_prefix: start from what the cache still holds of a common prefix, such as a
                long system prompt, instead of from an empty cache. Saves its prefill; logits
                may then round differently from those of a fresh run.

        Raises:
            PromptError: the prompt is empty, too long, or not understood.
            InvalidParameterError: an option is illegal or cannot be honoured here.
            BusyError: another generation is open.
            NumericalError: the model gave NaN or infinite logits.
        """
        with self.stream(prompt, params, tools=tools, reuse_prefix=reuse_prefix) as stream:
            return stream.drain()

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        reuse_prefix: bool = False,
    ) -> GenerationStream:
        """The same, chunk by chunk; closing the stream cancels it. Raises as `generate`."""
        checked = checked_params(params)
        check_bool("reuse_prefix", reuse_prefix)
        self.check_open()
        return self.start(self.encode(prompt, tools), checked, reuse=reuse_prefix)

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
        """Raise `ClosedError` after `close`."""
        if self._closed:
            raise ClosedError("the decoder is closed; load it again")

    def encode(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continues: bool = False,
    ) -> list[int]:
        """Token ids of a prompt (`PromptMaker.make`)."""
        return self._prompts.make(prompt, tools, continues=continues)

    def start(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        reuse: bool = False,
        on_end: Callable[[GenerationResult, bool], None] | None = None,
    ) -> GenerationStream:
        """Open a stream over ids; `reuse` keeps the shared prefix that is cached."""
        self.check_open()
        self._parts.check_supported(params)
        info = self._parts.target.info
        ids = fit_prompt(prompt_ids, params, info.vocab_size, info.max_length)
        generation = Generation(self._parts, ids, params, reuse)
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
