"""Measure a finished package on this machine and judge it; needs no torch.

1. time engine passes: the verify curve and a draft step, at several contexts;
2. compare distributions: target against the original weights, draft against target, one row a pass
   against several;
3. generate: acceptance by position at a fixed K, which with 1 predicts every K; then the best
   K against plain decoding, paired and interleaved;
4. judge the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Any

import numpy as np

from specdec.engines.load import LoadedPackage
from specdec.engines.release import VERSION
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.report.contents import Candidate, Costs, Level, Quality, Report
from specdec.runtime.report.measuring.curves import CurvePlan, measure_curves, plan_curves
from specdec.runtime.report.measuring.divergence import AgreementTally, draft_rows, score_text
from specdec.runtime.report.measuring.golden import compare_with_golden, read_golden
from specdec.runtime.report.measuring.machine import describe_machine
from specdec.runtime.report.measuring.memory import bytes_per_pass, package_memory
from specdec.runtime.report.plan import GenerationPlan, plan_generation
from specdec.runtime.report.safety import (
    greedy_problem,
    measure_parity,
    original_problem,
    parity_problem,
)
from specdec.runtime.report.trials import Trials, play_trials
from specdec.runtime.report.verdict import judge

__all__ = ["Step", "measure_package"]

Step = Callable[[str], AbstractContextManager[Any]]
"""Enters a named step of the measurement, for a progress display."""


def measure_package(
    package: LoadedPackage,
    *,
    level: Level = "short",
    load_seconds: float = 0.0,
    resident: int | None = None,
    num_threads: int | None = None,
    problems: Sequence[str] = (),
    candidates: Sequence[Candidate] = (),
    step: Step | None = None,
) -> Report:
    """Measure and judge.

    Args:
        package: with its draft loaded, if it has one; no generation may be open on it.
        level: "short" or "full".
        load_seconds: how long loading took.
        resident: memory of the process right after loading, bytes, if known.
        num_threads: what the engines were loaded with, for the record.
        problems: what earlier checks found wrong.
        candidates: the draft recipes that were tried, for the record.
        step: receives the steps.

    Raises:
        NumericalError: an engine's logits are not finite.
        PackageError: the package's reference texts are malformed.
    """
    step = step or _no_step
    target, draft = package.target, package.draft
    drafter: DrafterName = "ngram" if draft is None else "model"
    with SpeculativeDecoder.from_package(package, drafter=drafter, owns=False) as decoder:
        with step("time the engines"):
            step_seconds = _step_seconds(package)
            context = min(e.info.max_length for e in (target, draft) if e is not None)
            plan = plan_generation(decoder, level, step_seconds, context)
            filler = [token for text in plan.texts for token in text]
            curves = measure_curves(
                target,
                draft,
                package.draft_shares_cache,
                plan_curves(level, target.info.max_length, step_seconds),
                filler,
            )
        with step("compare what they compute"):
            quality = _compare(package, plan)
        with step("generate with and without the draft"):
            trials = play_trials(package, decoder, plan, curves, level)
    for engine in (target, draft):
        if engine is not None:
            engine.truncate(0)
    quality = Quality(**{**vars(quality), "greedy": trials.greedy, "acceptance": trials.acceptance})
    alternatives = trials.alternatives(quality)
    found = [*problems, *_problems(quality)]
    return Report(
        format=1,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        level=level,
        specdec_version=VERSION,
        machine=describe_machine(
            target.info.device, None if draft is None else draft.info.device, num_threads
        ),
        costs=_costs(package, trials, load_seconds, resident),
        quality=quality,
        predictions=trials.predictions,
        measured=trials.measured,
        split=trials.split,
        alternatives=alternatives,
        candidates=tuple(candidates),
        verdict=judge(
            list(dict.fromkeys(found)),
            trials.measured,
            trials.predictions,
            trials.greedy_model,
            alternatives,
        ),
    )


def _step_seconds(package: LoadedPackage) -> float:
    """Rough time of a plain step, to size the measurement by."""
    quick = CurvePlan(contexts=(1,), widths=(1,), repeats=3)
    return measure_curves(package.target, None, False, quick, [0])[0].verify_seconds[1]


def _compare(package: LoadedPackage, plan: GenerationPlan) -> Quality:
    target, draft = package.target, package.draft
    golden = read_golden(package)
    shared, alone = AgreementTally(), AgreementTally()
    if draft is not None:
        for text in plan.texts:
            logits = score_text(target, text)
            if not package.draft_shares_cache and len(text) > draft.info.max_length:
                continue
            rows = np.empty_like(logits)
            for i, row in draft_rows(target, draft, package.draft_shares_cache, text):
                rows[i] = row
            shared.add(rows, logits, text)
            if package.draft_shares_cache:
                alone.add(score_text(draft, text, 1), logits, text)
        target.truncate(0)
    own_cache = draft is not None and not package.draft_shares_cache
    rows_per_pass = min(5, target.info.max_length)
    return Quality(
        target_vs_original=compare_with_golden(target, golden),
        draft_vs_target=shared.agreement(),
        draft_alone_vs_target=(shared if own_cache else alone).agreement(),
        parity=measure_parity(target, plan.texts[0], rows_per_pass),
        greedy=None,
        acceptance=(),
    )


def _problems(quality: Quality) -> Iterator[str]:
    if quality.target_vs_original is not None:
        yield from _if_any(original_problem(quality.target_vs_original))
    yield from _if_any(parity_problem(quality.parity))
    if quality.greedy is not None:
        noise = quality.parity.max_logit_difference
        yield from _if_any(greedy_problem(quality.greedy, noise))


def _if_any(problem: str | None) -> Iterator[str]:
    if problem is not None:
        yield problem


def _costs(
    package: LoadedPackage, trials: Trials, load_seconds: float, resident: int | None
) -> Costs:
    manifest = package.manifest
    read = bytes_per_pass(manifest, "target")
    plain = trials.curves[0].verify_seconds[1]
    return Costs(
        contexts=trials.curves,
        host_seconds_plain=trials.host_plain,
        host_seconds_round=None if trials.split is None else trials.split.host_seconds,
        load_seconds=load_seconds,
        memory=package_memory(manifest, resident),
        target_bytes_per_pass=read,
        target_bytes_per_second=read / plain,
    )


@contextmanager
def _no_step(name: str) -> Iterator[None]:
    yield
