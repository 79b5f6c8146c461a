"""`BatchDecoder`: one package and many requests at once, for callers on any number of threads.

with BatchDecoder.load("package", num_slots=4) as decoder:
    requests = [decoder.submit(prompt, params) for prompt in prompts]
    texts = [request.drain().text for request in requests]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

from specdec.engines.engine import EngineInfo
from specdec.engines.onnxruntime.options import DEFAULT_ORT_OPTIONS, OrtOptions
from specdec.engines.slots import SlottedEngine
from specdec.engines.slotted import load_slotted
from specdec.runtime.checks import MAX_INTEGER, check_integer
from specdec.runtime.closing import Closing
from specdec.runtime.decoding.parts import DrafterName, Parts
from specdec.runtime.decoding.results import GenerationResult
from specdec.runtime.drafting.acceptance import AcceptanceTable
from specdec.runtime.drafting.costs import DEFAULT_COSTS, CostTable
from specdec.runtime.drafting.draft_length import Savings
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.package_loading import package_arguments
from specdec.runtime.sampling.defaults import NO_DEFAULTS, ModelDefaults
from specdec.runtime.sampling.params import SamplingParams, checked_params
from specdec.runtime.sampling.randomness import RoundRandom
from specdec.runtime.serving.batch_costs import BatchCosts
from specdec.runtime.serving.counters import Counters
from specdec.runtime.serving.requests import Event, Job, Request, deadline_after, is_past
from specdec.runtime.serving.scheduler import Scheduler
from specdec.runtime.serving.slot_engine import SlotEngine
from specdec.runtime.text.chat import ChatTemplate
from specdec.runtime.text.codec import TextCodec
from specdec.runtime.text.prompts import Prompt, PromptReader

__all__ = ["BatchDecoder"]

_CHUNK = 128
"""Rows of a prompt in one pass, which all other requests wait for."""


class BatchDecoder(Closing):
    """Generates for several requests at once; each text follows the target's law alone.

    All methods may be called from any thread.
    """

    def __init__(
        self,
        target: SlottedEngine,
        draft: SlottedEngine | None = None,
        *,
        shares_cache: bool = False,
        codec: TextCodec | None = None,
        chat: ChatTemplate | None = None,
        eos_token_ids: Iterable[int] = (),
        bos_token_id: int | None = None,
        defaults: ModelDefaults = NO_DEFAULTS,
        drafter: DrafterName = "auto",
        costs: Mapping[str, Any] | None = None,
        make_random: Callable[[SamplingParams], RoundRandom] | None = None,
        max_queue: int = 256,
        prefill_chunk: int = _CHUNK,
    ) -> None:
        """Build a decoder over slotted engines; it owns and closes them.

        Args:
            target: the model whose distribution every output follows; its slots are the number
                of requests that run at once.
            draft: a cheaper model with the same vocabulary and as many slots, or None.
            shares_cache: the draft reads and writes the target's caches.
            codec: tokenizer; without one, prompts are ids and there is no text.
            chat: template for prompts that are messages.
            eos_token_ids: the model's end tokens.
            bos_token_id: the token that begins a text; a truncated prompt keeps it.
            defaults: what the model's package bans, and its sampling options.
            drafter: as in `SpeculativeDecoder`.
            costs: measured seconds of a single request to start from.
            make_random: replaces the source of randomness.
            max_queue: requests that may wait for a slot; more are refused.
            prefill_chunk: tokens of a prompt that are read in one pass.

        Raises:
            InvalidParameterError: the models do not fit together, or a number is out of range.
        """
        check_integer("max_queue", max_queue, 0)
        check_integer("prefill_chunk", prefill_chunk, 1)
        if draft is not None and draft.num_slots != target.num_slots:
            raise InvalidParameterError(
                f"the draft has {draft.num_slots} slots and the target has {target.num_slots}; "
                "a pair needs as many"
            )
        self._engines = [target] if draft is None else [draft, target]
        self._codec = codec
        info = target.info
        self._prompts = PromptReader(codec, chat, bos_token_id, info.vocab_size, info.max_length)
        shared = self._costs = BatchCosts(CostTable.from_mapping(costs or {}) or DEFAULT_COSTS)
        acceptance, savings = AcceptanceTable(), Savings()
        parts = []
        for slot in range(target.num_slots):
            each = Parts.assemble(
                SlotEngine(target, slot, prefill_chunk),
                None if draft is None else SlotEngine(draft, slot, prefill_chunk),
                drafter=drafter,
                shares_cache=shares_cache,
                codec=codec,
                eos_token_ids=eos_token_ids,
                costs=costs,
                make_random=make_random,
                defaults=defaults,
            )
            each.costs, each.acceptance, each.savings = shared, acceptance, savings
            parts.append(each)
        self._parts = parts[0]
        drafts = draft if self._parts.has_draft_model else None
        self._scheduler = Scheduler(drafts, parts, shared, max_queue=max_queue)
        self._closed = False

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        num_slots: int = 4,
        device: str = "cpu",
        draft_device: str | None = None,
        verify_checksums: bool = True,
        num_threads: int | None = None,
        drafter: DrafterName = "auto",
        ort: OrtOptions = DEFAULT_ORT_OPTIONS,
        max_queue: int = 256,
        prefill_chunk: int = _CHUNK,
    ) -> BatchDecoder:
        """Load a package directory written by `specdec-export`.

        Args:
            path: the directory.
            num_slots: requests that run at once, each with a KV cache of its own.
            max_queue, prefill_chunk: as in the constructor.

        The other arguments and the errors are those of `SpeculativeDecoder.load`.

        Raises:
            EngineError: also when the backend holds one sequence alone.
        """
        check_integer("num_slots", num_slots, 1)
        package, target, draft = load_slotted(
            path,
            num_slots,
            device=device,
            draft_device=draft_device,
            verify_checksums=verify_checksums,
            num_threads=num_threads,
            load_draft=drafter not in ("ngram", "none"),
            ort=ort,
        )
        try:
            return cls(
                target,
                draft,
                drafter=drafter,
                **package_arguments(package, None),
                max_queue=max_queue,
                prefill_chunk=prefill_chunk,
            )
        except BaseException:
            package.close()
            raise

    @property
    def info(self) -> EngineInfo:
        """Static facts of the target."""
        return self._parts.target.info

    @property
    def num_running(self) -> int:
        """Requests that have a slot."""
        return self._scheduler.num_running

    @property
    def num_waiting(self) -> int:
        """Requests that wait for one."""
        return self._scheduler.num_waiting

    @property
    def has_room(self) -> bool:
        """True while a request would be taken."""
        return not self._closed and self._scheduler.has_room

    @property
    def is_alive(self) -> bool:
        """True while the scheduler's thread runs; False after `close`."""
        return self._scheduler.is_alive

    @property
    def codec(self) -> TextCodec | None:
        """The tokenizer, where there is one."""
        return self._codec

    @property
    def plain_tokens_per_second(self) -> float | None:
        """What plain decoding of one request would run at, from measured passes; None at first."""
        seconds = self._costs.plain_seconds
        return None if seconds is None else 1.0 / seconds

    @property
    def counters(self) -> Counters:
        """Totals since the start."""
        return self._scheduler.counters

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Request:
        """Queue a request.

        Args:
            prompt: text, token ids, or chat messages.
            params: None is greedy with 128 new tokens.
            tools: tool descriptions for the chat template.
            priority: higher ones get a free slot first.
            timeout: seconds until it is cancelled, waiting included; None for no limit.

        Returns:
            Its chunks as they arrive.

        Raises:
            PromptError: the prompt is empty, too long, or not understood.
            InvalidParameterError: an option is illegal or cannot be honoured here.
            BusyError: `max_queue` requests wait already.
            ClosedError: the decoder is closed.
        """
        request = Request(self._scheduler.wake)
        job = self.job(prompt, params, request.deliver, tools, priority, timeout)
        request.attach(job)
        self._scheduler.submit(job)
        return request

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> GenerationResult:
        """`submit`, and wait for the end."""
        return self.submit(prompt, params, tools=tools, priority=priority, timeout=timeout).drain()

    def job(
        self,
        prompt: Prompt,
        params: SamplingParams | None,
        deliver: Callable[[Event], None],
        tools: Sequence[Mapping[str, Any]] | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Job:
        """Check a request and make it a job for `start`; raises as `submit`."""
        deadline = deadline_after(timeout)
        check_integer("priority", priority, -MAX_INTEGER, MAX_INTEGER)
        params = checked_params(params)
        self._parts.check_supported(params)
        late = partial(is_past, deadline)
        ids = self._prompts.read(prompt, params, tools=tools, cancelled=late).ids
        return Job(ids, params, priority, deadline, deliver)

    def start(self, job: Job) -> None:
        """Queue a job; its events go to `job.deliver` on the scheduler's thread."""
        self._scheduler.submit(job)

    def wake(self) -> None:
        """Make the scheduler look at cancelled jobs at once."""
        self._scheduler.wake()

    def close(self) -> None:
        """Cancel every request, wait for their ends, and release the engines. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._scheduler.close()
        for engine in self._engines:
            engine.close()
