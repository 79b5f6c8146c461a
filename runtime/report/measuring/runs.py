"""Timed generations, paired and interleaved.

Every prompt is played with every variant, one right after the other and in an order that turns
with each repeat, so a machine that heats up, throttles or is shared slows all variants alike.
Figures compare runs of one prompt and repeat, never one long stretch with another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter

from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["BenchPrompt", "Run", "Variant", "decode_seconds", "play", "play_interleaved"]


@dataclass(frozen=True)
class BenchPrompt:
    """A prompt in token ids."""

    category: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Variant:
    """One way to generate."""

    name: str
    decoder: SpeculativeDecoder
    params: SamplingParams
    prepare: Callable[[int], None] | None = None
    """Called with the index of the prompt before each run, outside its time."""


@dataclass(frozen=True)
class Run:
    """One finished generation."""

    variant: str
    prompt: int
    """Index of the prompt."""
    category: str
    repeat: int
    stats: GenerationStats
    token_ids: tuple[int, ...]
    pauses: tuple[float, ...]
    """Seconds between arrivals of text, the first arrival excluded."""


def play_interleaved(
    prompts: Sequence[BenchPrompt],
    variants: Sequence[Variant],
    repeats: int = 1,
    on_run: Callable[[Run], None] | None = None,
) -> list[Run]:
    """Play everything; sampled variants get a seed of the prompt and repeat, the same for all.

    Only "auto" draft lengths go without: a seed would take the clock from them.

    Args:
        prompts: at least one.
        variants: decoders may be the same object or several; none may be busy.
        repeats: how often each prompt is played with each variant.
        on_run: called after each run.
    """
    runs = []
    for repeat in range(repeats):
        for index, prompt in enumerate(prompts):
            turn = (repeat + index) % len(variants)
            for variant in [*variants[turn:], *variants[:turn]]:
                run = play(variant, prompt, index, repeat)
                runs.append(run)
                if on_run is not None:
                    on_run(run)
    return runs


def play(variant: Variant, prompt: BenchPrompt, index: int = 0, repeat: int = 0) -> Run:
    """Play one prompt with one variant."""
    params = variant.params
    if not params.greedy and params.seed is None and params.num_draft_tokens != "auto":
        params = replace(params, seed=1000 * repeat + index)
    if variant.prepare is not None:
        variant.prepare(index)
    arrivals = []
    with closing(variant.decoder.stream(list(prompt.token_ids), params)) as stream:
        for chunk in stream:
            if chunk.token_ids:
                arrivals.append(perf_counter())
    result = stream.result
    assert result is not None, "a stream that was read to its end has a result"
    return Run(
        variant=variant.name,
        prompt=index,
        category=prompt.category,
        repeat=repeat,
        stats=result.stats,
        token_ids=result.token_ids,
        pauses=tuple(b - a for a, b in itertools.pairwise(arrivals)),
    )


def decode_seconds(run: Run) -> float:
    """Seconds of a run after its prompt was read."""
    return run.stats.total_seconds - run.stats.prefill_seconds
