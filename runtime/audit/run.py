"""Run the audit: greedy texts, the cache, and the distribution of committed tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

from specdec.engines.engine import Engine
from specdec.runtime.audit.greedy import check_rollback, compare_greedy
from specdec.runtime.audit.power import detectable
from specdec.runtime.audit.report import (
    AuditReport,
    GreedyReport,
    RollbackReport,
    SamplingReport,
    TestReport,
)
from specdec.runtime.audit.sampling import SamplingAudit
from specdec.runtime.audit.statistics import Fit, binomial_tail, holm
from specdec.runtime.decoder import SpeculativeDecoder
from specdec.runtime.decoding.parts import DrafterName
from specdec.runtime.sampling.params import SamplingParams

__all__ = ["AuditPlan", "audit", "default_settings"]

_OUTSIDE_BY_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """Extent of an audit.

    `settings` are sampled one after the other; each needs a temperature above 0. The greedy
    texts use the penalties and the number of drafted tokens of the first one.
    """

    settings: tuple[SamplingParams, ...]
    num_prefixes: int = 12
    samples: int = 1000
    """Per prefix and setting."""
    depth: int = 3
    """Tokens of each sample that are counted."""
    greedy_tokens: int = 48
    """Per prompt."""
    false_alarm_rate: float = 0.001
    """Chance that the statistical tests, all together, fail a correct decoder."""


def default_settings(
    has_draft_model: bool, num_draft_tokens: int = 2
) -> tuple[SamplingParams, ...]:
    """Plain sampling as deployed, and truncated sampling with a draft made worse on purpose.

    A draft close to its target hides faults: the error of a wrong rule is a part of their
    distance. A high draft temperature increases the distance and must not change the output. A
    small `top_k` keeps the number of different passes low.
    """
    return (
        SamplingParams(temperature=1.0, num_draft_tokens=2),
        SamplingParams(
            temperature=0.9,
            top_k=8,
            top_p=0.98,
            verify="token",
            num_draft_tokens=2,
            draft_temperature=2.0 if has_draft_model else None,
        ),
    )


def audit(
    target: Engine,
    draft: Engine | None,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    *,
    shares_cache: bool = False,
    drafter: DrafterName = "auto",
    end_token_ids: Iterable[int] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> AuditReport:
    """Audit a pair; the engines' caches are taken over and left empty.

    Args:
        prompts: token ids, each prompt at least one; used in turn.
        progress: called with a line before each step.

    Raises:
        InvalidParameterError: the pair, the drafter or an option does not fit.
        EngineError: an engine failed.
    """
    began = perf_counter()
    ends = frozenset(end_token_ids)
    decoder = SpeculativeDecoder(
        target, draft, shares_cache=shares_cache, drafter=drafter, eos_token_ids=ends
    )
    greedy, rollback = _greedy(
        decoder, target, draft if shares_cache else target, prompts, plan, progress
    )
    audits = []
    for number, params in enumerate(plan.settings, 1):
        part = SamplingAudit(
            target,
            draft,
            shares_cache=shares_cache,
            drafter=drafter,
            end_token_ids=ends,
            params=params,
            depth=plan.depth,
        )
        for index in range(plan.num_prefixes):
            progress(f"sampling {number}/{len(plan.settings)}: {index + 1}/{plan.num_prefixes}")
            prefix = part.choose_prefix(prompts[index % len(prompts)])
            part.count(prefix, plan.samples)
        audits.append(part)
    return AuditReport(
        false_alarm_rate=plan.false_alarm_rate,
        greedy=greedy,
        rollback=rollback,
        sampling=_judge(audits, plan),
        seconds=perf_counter() - began,
        engine_passes=sum(part.passes[0] for part in audits),
        replayed_passes=sum(part.passes[1] for part in audits),
    )


def _greedy(
    decoder: SpeculativeDecoder,
    target: Engine,
    writer: Engine | None,
    prompts: Sequence[Sequence[int]],
    plan: AuditPlan,
    progress: Callable[[str], None],
) -> tuple[GreedyReport, RollbackReport]:
    params = replace(
        plan.settings[0],
        temperature=0.0,
        draft_temperature=None,
        max_new_tokens=plan.greedy_tokens,
    )
    texts, differences = [], []
    for index, prompt in enumerate(prompts):
        progress(f"greedy: {index + 1}/{len(prompts)}")
        text, difference = compare_greedy(decoder, target, prompt, params)
        texts.append([*prompt, *text])
        differences += [] if difference is None else [difference]
    num_tokens = sum(len(text) for text in texts) - sum(len(prompt) for prompt in prompts)
    longest = max(texts, key=len)
    num_rows = min(_rows(params), (len(longest) - 1) // 2)
    rollback = check_rollback(target, writer or target, longest, num_rows)
    return GreedyReport(len(texts), num_tokens, tuple(differences)), rollback


def _rows(params: SamplingParams) -> int:
    wanted = params.num_draft_tokens
    return 9 if wanted == "auto" else wanted + 1


def _judge(audits: Sequence[SamplingAudit], plan: AuditPlan) -> tuple[SamplingReport, ...]:
    """Tests of every setting, corrected together for one false-alarm rate."""
    tests = [_tests(part) for part in audits]
    p_values = [test.p_value for group in tests for test in group]
    failed = iter(holm(p_values, plan.false_alarm_rate))
    judged = [tuple(replace(test, failed=next(failed)) for test in group) for group in tests]
    level = plan.false_alarm_rate / len(p_values)
    return tuple(
        _report(part, params, group, level, plan)
        for part, params, group in zip(audits, plan.settings, judged, strict=True)
    )


def _tests(part: SamplingAudit) -> list[TestReport]:
    """One test per depth, one of the worst prefix, one of tokens that must never come."""
    counted = part.counted
    tests = [
        TestReport(f"token {depth + 1}", fit.statistic, fit.mean, fit.p_value, False)
        for depth, fit in enumerate(counted.depths)
    ]
    worst = min(counted.firsts, key=lambda fit: fit.p_value)
    p_value = min(1.0, worst.p_value * len(counted.firsts))
    tests.append(TestReport("worst prefix", worst.statistic, worst.mean, p_value, False))
    whole = sum(counted.depths, Fit())
    chance = binomial_tail(whole.outside, whole.draws, _OUTSIDE_BY_ROUNDING)
    expected = whole.draws * _OUTSIDE_BY_ROUNDING
    tests.append(TestReport("excluded tokens", whole.outside, expected, chance, False))
    return tests


def _report(
    part: SamplingAudit,
    params: SamplingParams,
    tests: tuple[TestReport, ...],
    level: float,
    plan: AuditPlan,
) -> SamplingReport:
    counted = part.counted
    whole = sum(counted.depths, Fit())
    evaluated, rounds = counted.evaluated, counted.rounds
    return SamplingReport(
        options=_changed(params),
        num_prefixes=plan.num_prefixes,
        num_samples=counted.samples,
        acceptance_rate=counted.accepted / evaluated if evaluated else 0.0,
        tokens_per_round=counted.committed / rounds if rounds else 0.0,
        total_variation=whole.total_variation,
        noise_floor=whole.noise_floor,
        detectable=detectable(counted.depths[0], level),
        tests=tests,
    )


def _changed(params: SamplingParams) -> dict[str, Any]:
    """Options that differ from the defaults; numbers, strings and the like."""
    usual = SamplingParams()
    return {
        field.name: value
        for field in fields(params)
        if (value := getattr(params, field.name)) != getattr(usual, field.name)
    }
