"""Run the generations of a report: acceptance first, then the best K against plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdec.engines.load import LoadedPackage
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.caches import common_prefix
from specdec.runtime.report.contents import (
    Acceptance,
    Alternative,
    ContextCosts,
    GreedyPair,
    Level,
    Measured,
    Prediction,
    Quality,
    RoundSplit,
)
from specdec.runtime.report.measuring.acceptance import count_acceptance
from specdec.runtime.report.measuring.intervals import median
from specdec.runtime.report.measuring.runs import Run, Variant, decode_seconds, play_interleaved
from specdec.runtime.report.model import SpeedModel
from specdec.runtime.report.plan import GenerationPlan
from specdec.runtime.report.safety import compare_greedy
from specdec.runtime.report.speeds import (
    host_costs,
    measured_speed,
    predict,
    round_split,
    speed_model,
)
from specdec.runtime.report.verdict import AUTO
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["Trials", "play_trials"]

_PROBE = 8
"""K at which acceptance is counted."""
_TEMPERATURES = (0.0, 0.7)
_PLAIN, _BEST, _DRAFT_ALONE = "plain", "best", "draft alone"


@dataclass(frozen=True)
class Trials:
    """Results of the generations."""

    curves: tuple[ContextCosts, ...]
    acceptance: tuple[Acceptance, ...]
    predictions: tuple[Prediction, ...]
    measured: tuple[Measured, ...]
    split: RoundSplit | None
    host_plain: float
    greedy: GreedyPair | None
    greedy_model: SpeedModel | None
    plain_runs: tuple[Run, ...]
    draft_alone_runs: tuple[Run, ...]

    def alternatives(self, quality: Quality) -> tuple[Alternative, ...]:
        """The target alone, and the draft as a model by itself."""
        plain = _rate(self.plain_runs)
        same_distribution = ("the target alone", plain, 1.0, 1.0, 0.0)
        length = median([len(run.token_ids) for run in self.plain_runs])
        alternatives = [Alternative(*same_distribution, same_tokens=length, of_tokens=length)]
        alone = quality.draft_alone_vs_target
        if self.draft_alone_runs and alone is not None:
            pairs = zip(self.plain_runs, self.draft_alone_runs, strict=True)
            rate = _rate(self.draft_alone_runs)
            alternatives.append(
                Alternative(
                    name="the draft alone",
                    tokens_per_second=rate,
                    relative_speed=rate / plain,
                    overlap=alone.overlap,
                    kl_divergence=alone.kl_divergence,
                    same_tokens=median([common_prefix(a.token_ids, b.token_ids) for a, b in pairs]),
                    of_tokens=length,
                )
            )
        return tuple(alternatives)


def play_trials(
    package: LoadedPackage,
    decoder: SpeculativeDecoder,
    plan: GenerationPlan,
    curves: tuple[ContextCosts, ...],
    level: Level,
) -> Trials:
    """Generate at every temperature.

    Args:
        package: the engines.
        decoder: over them, with the draft if there is one and n-grams if not.
        plan: prompts and lengths.
        curves: costs to predict with.
        level: "full" also samples with the drafting that the runtime chooses itself.
    """
    acceptance: list[Acceptance] = []
    predictions: list[Prediction] = []
    measured: list[Measured] = []
    timed: list[_Timed] = []
    for temperature in _TEMPERATURES:
        with_auto = level == "full" or temperature == 0.0
        one = _play(package, decoder, plan, curves, temperature, with_auto)
        timed.append(one)
        acceptance += one.acceptance
        predictions += one.predictions
        measured += one.measured
    greedy = timed[0]
    prompts = [prompt.token_ids for prompt in plan.prompts]
    texts = [
        (prompts[a.prompt], a.token_ids, b.token_ids)
        for a, b in zip(greedy.runs[_PLAIN], greedy.runs[_BEST], strict=True)
        if a.repeat == 0
    ]
    return Trials(
        curves=curves,
        acceptance=tuple(acceptance),
        predictions=tuple(predictions),
        measured=tuple(measured),
        split=round_split(greedy.runs[_BEST], greedy.best),
        host_plain=greedy.host_plain,
        greedy=compare_greedy(package.target, texts),
        greedy_model=greedy.model,
        plain_runs=tuple(greedy.runs[_PLAIN]),
        draft_alone_runs=tuple(greedy.runs.get(_DRAFT_ALONE, ())),
    )


@dataclass(frozen=True)
class _Timed:
    """Everything of one temperature."""

    best: int
    model: SpeedModel | None
    host_plain: float
    acceptance: tuple[Acceptance, ...]
    predictions: tuple[Prediction, ...]
    measured: tuple[Measured, ...]
    runs: dict[str, list[Run]]


def _play(
    package: LoadedPackage,
    decoder: SpeculativeDecoder,
    plan: GenerationPlan,
    curves: tuple[ContextCosts, ...],
    temperature: float,
    with_auto: bool,
) -> _Timed:
    def variant(name: str, num_draft_tokens: int | Literal["auto"]) -> Variant:
        return Variant(name, decoder, _params(plan, temperature, num_draft_tokens))

    prompts = plan.prompts if temperature == 0.0 else plan.prompts[: plan.sampled_prompts]
    probes = play_interleaved(prompts, [variant("probe", _PROBE)])
    acceptance = count_acceptance(probes, temperature)
    warm = play_interleaved(prompts[:1], [variant(_PLAIN, 0)])
    model = None
    if package.draft is not None:
        model = speed_model(curves, probes, host_costs(warm, probes))
    predictions = tuple(predict(model, a) for a in acceptance) if model is not None else ()
    best = predictions[0].best if predictions else _PROBE
    variants = [variant(_PLAIN, 0), variant(_BEST, best)]
    if with_auto:  # as the runtime does it by default: a model, look-ups, or both
        default = SpeculativeDecoder.from_package(package, owns=False)
        variants.append(Variant(AUTO, default, _params(plan, temperature, "auto")))
    if package.draft is not None and temperature == 0.0:
        ends = package.manifest.tokenizer.eos_token_ids
        alone = SpeculativeDecoder(package.draft, eos_token_ids=ends)
        variants.append(Variant(_DRAFT_ALONE, alone, _params(plan, temperature, 0)))
    runs: dict[str, list[Run]] = {v.name: [] for v in variants}
    play_interleaved(prompts, variants, plan.repeats, lambda run: runs[run.variant].append(run))
    predicting = None if model is None else (model, acceptance, best)
    measured = measured_speed(runs[_PLAIN], runs[_BEST], str(best), temperature, predicting)
    if with_auto:
        measured += measured_speed(runs[_PLAIN], runs[AUTO], AUTO, temperature, None)
    return _Timed(
        best=best,
        model=model,
        host_plain=host_costs(runs[_PLAIN], []).plain,
        acceptance=acceptance,
        predictions=predictions,
        measured=measured,
        runs=runs,
    )


def _params(
    plan: GenerationPlan, temperature: float, num_draft_tokens: int | Literal["auto"]
) -> SamplingParams:
    return SamplingParams(
        max_new_tokens=plan.new_tokens, temperature=temperature, num_draft_tokens=num_draft_tokens
    )


def _rate(runs: Sequence[Run]) -> float:
    return sum(run.stats.new_tokens for run in runs) / sum(decode_seconds(run) for run in runs)
