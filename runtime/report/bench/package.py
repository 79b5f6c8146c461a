"""Benchmark one loaded package: plain against speculative decoding, paired and interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specdec.engines.load import LoadedPackage
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.report.bench.contents import BenchResult, Interval, Percentiles
from specdec.runtime.report.bench.energy import EnergyMeter, EnergySource
from specdec.runtime.report.bench.forced import ForcedDrafter
from specdec.runtime.report.measuring.intervals import bootstrap_interval, median
from specdec.runtime.report.measuring.memory import bytes_per_pass
from specdec.runtime.report.measuring.runs import BenchPrompt, Run, Variant, decode_seconds, play
from specdec.runtime.report.plan import encode_prompts
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["BenchSettings", "DraftTokens", "bench_package"]

DraftTokens = int | Literal["auto"]


@dataclass(frozen=True)
class BenchSettings:
    """Prompts, variants and repeats of a benchmark."""

    prompts: tuple[tuple[str, str], ...]
    """(category, text)."""
    params: SamplingParams
    """Of every run, but for the number of draft tokens."""
    draft_tokens: tuple[DraftTokens, ...]
    """Each is compared with plain decoding, which is always played."""
    contexts: tuple[int | None, ...] = (None,)
    repeats: int = 3
    drafter: DrafterName = "auto"
    acceptances: tuple[float, ...] = ()
    """Forced acceptances to simulate; empty measures the draft as it is."""
    num_threads: int | None = None
    """What the engines were loaded with, for the record."""


def bench_package(
    package: LoadedPackage,
    settings: BenchSettings,
    sources: Sequence[EnergySource] = (),
    on_run: Callable[[Run], None] | None = None,
) -> list[BenchResult]:
    """Run all variants over all prompts.

    Args:
        package: loaded with its draft, if one is to be used.
        settings: what to play.
        sources: what measures energy.
        on_run: called after each run, for progress.

    Raises:
        InvalidParameterError: a forced acceptance without a draft, with sampling, or outside
            0 .. 1; a context that does not fit.
    """
    _check(package, settings)
    results = []
    with SpeculativeDecoder.from_package(package, drafter=settings.drafter, owns=False) as decoder:
        for context in settings.contexts:
            prompts = _prompts(decoder, settings, context)
            ways = _ways(package, decoder, settings, prompts)
            runs = _play_all(ways, prompts, settings.repeats, sources, on_run)
            plain = runs[0]
            results += [
                _summarise(package, settings, context, way, own, None if i == 0 else plain)
                for i, (way, own) in enumerate(zip(ways, runs, strict=True))
            ]
    return results


@dataclass(frozen=True)
class _Way:
    """A variant and what it simulates."""

    variant: Variant
    acceptance: float | None


_Metered = tuple[Run, float | None]
"""A run and its joules."""


def _check(package: LoadedPackage, settings: BenchSettings) -> None:
    for acceptance in settings.acceptances:
        if not 0.0 <= acceptance <= 1.0:
            raise InvalidParameterError(f"acceptance is {acceptance:g}; allowed is 0 .. 1")
    if settings.acceptances and package.draft is None:
        raise InvalidParameterError(
            "an acceptance can be simulated with a draft engine only, whose passes set the cost; "
            "export the package with --draft self"
        )
    if settings.acceptances and not settings.params.greedy:
        raise InvalidParameterError("a simulated acceptance needs greedy decoding; temperature 0")
    room = package.target.info.max_length - settings.params.max_new_tokens
    too_long = [c for c in settings.contexts if c is not None and not 0 < c <= room]
    if too_long or room < 1:
        raise InvalidParameterError(
            f"context {too_long[0] if too_long else 1} and {settings.params.max_new_tokens} new "
            f"tokens do not fit; allowed is a context of 1 .. {room}"
        )


def _prompts(
    decoder: SpeculativeDecoder, settings: BenchSettings, context: int | None
) -> tuple[BenchPrompt, ...]:
    """Encode the prompts; to a context, each is cut or preceded by the others to its length."""
    room = decoder.max_length - settings.params.max_new_tokens
    prompts = encode_prompts(decoder, settings.prompts, room)
    if context is None:
        return prompts
    pool = [token for prompt in prompts for token in prompt.token_ids]
    filler = pool * (context // len(pool) + 1)
    return tuple(
        replace(prompt, token_ids=tuple([*filler, *prompt.token_ids][-context:]))
        for prompt in prompts
    )


def _ways(
    package: LoadedPackage,
    decoder: SpeculativeDecoder,
    settings: BenchSettings,
    prompts: Sequence[BenchPrompt],
) -> list[_Way]:
    """Plain decoding first, then every number of draft tokens, at every forced acceptance."""
    params = settings.params
    plain = Variant("plain", decoder, replace(params, num_draft_tokens=0))
    lengths = [k for k in settings.draft_tokens if k != 0]
    ways = [_Way(plain, None)]
    if not settings.acceptances:
        drafted = [Variant(str(k), decoder, replace(params, num_draft_tokens=k)) for k in lengths]
        return [*ways, *(_Way(variant, None) for variant in drafted)]
    texts = [
        (*prompt.token_ids, *play(plain, prompt, i).token_ids) for i, prompt in enumerate(prompts)
    ]
    assert package.draft is not None
    for acceptance in settings.acceptances:
        drafter = ForcedDrafter(package.draft, acceptance, shares_cache=package.draft_shares_cache)
        forced = SpeculativeDecoder(
            package.target,
            package.draft,
            shares_cache=package.draft_shares_cache,
            eos_token_ids=package.manifest.tokenizer.eos_token_ids,
            drafter=drafter,
        )

        def prepare(index: int, drafter: ForcedDrafter = drafter) -> None:
            drafter.text = texts[index]

        for k in lengths:
            variant = Variant(f"{k} at {acceptance}", forced, replace(params, num_draft_tokens=k))
            ways.append(_Way(replace(variant, prepare=prepare), acceptance))
    return ways


def _play_all(
    ways: Sequence[_Way],
    prompts: Sequence[BenchPrompt],
    repeats: int,
    sources: Sequence[EnergySource],
    on_run: Callable[[Run], None] | None,
) -> list[list[_Metered]]:
    """Runs by way; the order turns with prompt and repeat, as in `play_interleaved`."""
    for way in ways:  # buffers and caches warm, nothing counted
        play(replace(way.variant, params=replace(way.variant.params, max_new_tokens=4)), prompts[0])
    meter = EnergyMeter(sources)
    runs: list[list[_Metered]] = [[] for _ in ways]
    for repeat in range(repeats):
        for index, prompt in enumerate(prompts):
            for turn in range(len(ways)):
                chosen = (turn + repeat + index) % len(ways)
                with meter:
                    run = play(ways[chosen].variant, prompt, index, repeat)
                runs[chosen].append((run, meter.joules))
                if on_run is not None:
                    on_run(run)
    return runs


def _summarise(
    package: LoadedPackage,
    settings: BenchSettings,
    context: int | None,
    way: _Way,
    metered: Sequence[_Metered],
    plain: Sequence[_Metered] | None,
) -> BenchResult:
    runs = [run for run, _ in metered]
    manifest = package.manifest
    draft = manifest.draft if package.draft is not None else None
    rates = [run.stats.new_tokens / decode_seconds(run) for run in runs]
    speedups = None
    if plain is not None:
        base = [run.stats.new_tokens / decode_seconds(run) for run, _ in plain]
        speedups = [rate / reference for rate, reference in zip(rates, base, strict=True)]
    seconds = sum(decode_seconds(run) for run in runs)
    rounds = sum(run.stats.rounds for run in runs)
    evaluated = sum(run.stats.evaluated for run in runs)
    tokens = sum(run.stats.new_tokens for run in runs)
    read = rounds * bytes_per_pass(manifest, "target")
    joules = [joule for _, joule in metered if joule is not None]
    return BenchResult(
        package=package.path.name,
        precision=manifest.target.recipe + ("" if draft is None else f" + {draft.recipe}"),
        num_threads=settings.num_threads,
        context=context,
        num_draft_tokens=str(way.variant.params.num_draft_tokens),
        drafter="simulated" if way.acceptance is not None else settings.drafter,
        simulated_acceptance=way.acceptance,
        runs=len(runs),
        tokens=tokens,
        tokens_per_second=_interval(rates),
        rates=tuple(rates),
        speedup=None if speedups is None else _interval(speedups),
        time_to_first_token=_interval([run.stats.time_to_first_token for run in runs]),
        inter_token=_percentiles([pause for run in runs for pause in run.pauses]),
        acceptance_rate=sum(r.stats.accepted for r in runs) / evaluated if evaluated else None,
        tokens_per_round=tokens / rounds,
        host_share=sum(run.stats.host_seconds for run in runs) / seconds,
        bytes_per_second=read / sum(run.stats.verify_seconds for run in runs),
        joules_per_token=sum(joules) / tokens if joules else None,
    )


def _interval(values: Sequence[float]) -> Interval:
    low, high = bootstrap_interval(np.asarray(values, np.float64), lambda a: float(np.median(a)))
    return Interval(median(values), low, high)


def _percentiles(pauses: Sequence[float]) -> Percentiles:
    p50, p95, p99 = np.percentile(pauses or [0.0], [50, 95, 99])
    return Percentiles(float(p50), float(p95), float(p99))
