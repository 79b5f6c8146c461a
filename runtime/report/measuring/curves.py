"""Measure the cost curves: T(M), the target's time for M rows, and d, one drafted token.

Each repeat visits every width once, in an order shuffled anew, a draft step before each target
pass as in a round, so that a machine that drifts or stalls tilts no single width. Medians.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from specdec.engines.engine import Engine
from specdec.runtime.meter import Meter, prefill
from specdec.runtime.report.contents import ContextCosts
from specdec.runtime.report.measuring.intervals import median

__all__ = ["CurvePlan", "costs_at", "measure_curves", "plan_curves"]

_WIDTHS = tuple(range(1, 18))
_FEW_WIDTHS = (1, 2, 3, 4, 5, 7, 9, 13, 17)
_CONTEXTS = {"short": (64, 256), "full": (64, 256, 1024, 3072)}
_REPEATS = {"short": 3, "full": 9}
_SLOW_SECONDS = 0.12


@dataclass(frozen=True)
class CurvePlan:
    """What to time."""

    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    repeats: int


def plan_curves(level: str, max_length: int, step_seconds: float) -> CurvePlan:
    """Fit the measurement to the context and to the speed of the model.

    Args:
        level: "short" or "full".
        max_length: context of the target.
        step_seconds: rough time of a plain step; slow models are timed at fewer widths.
    """
    slow = level == "short" and step_seconds > _SLOW_SECONDS
    contexts = [c for c in _CONTEXTS[level] if c + _WIDTHS[-1] <= max_length]
    if not contexts:
        contexts = [max(1, (max_length - _WIDTHS[-1]) // 2)]
    room = max_length - max(contexts)
    return CurvePlan(
        contexts=tuple(contexts[:1] if slow else contexts),
        widths=tuple(m for m in (_FEW_WIDTHS if slow else _WIDTHS) if m <= room),
        repeats=3 if slow else _REPEATS[level],
    )


def measure_curves(
    target: Engine,
    draft: Engine | None,
    shares_cache: bool,
    plan: CurvePlan,
    filler: Sequence[int],
) -> tuple[ContextCosts, ...]:
    """Time both engines; both caches are empty afterwards.

    Args:
        target: the target engine.
        draft: the draft engine or None.
        shares_cache: whether the draft uses the target's cache.
        plan: what to time.
        filler: token ids to fill caches and passes with, repeated as needed.
    """
    engines = [target] if draft is None or shares_cache else [target, draft]
    order = random.Random(0)
    measured = []
    for context in plan.contexts:
        ids = _cycle(filler, context + max(plan.widths))
        for engine in engines:
            engine.truncate(0)
            room = min(context, engine.info.max_length - 1)
            prefill(engine, ids[:room], Meter())
        drafted: list[float] = []
        taken: dict[int, list[float]] = {rows: [] for rows in plan.widths}
        for repeat in range(plan.repeats + 1):  # the first is a warm-up
            for rows in order.sample(plan.widths, len(plan.widths)):
                draft_seconds = None if draft is None else _timed(draft, ids[context : context + 1])
                seconds = _timed(target, ids[context : context + rows])
                if repeat:
                    taken[rows].append(seconds)
                    drafted += [] if draft_seconds is None else [draft_seconds]
        measured.append(
            ContextCosts(
                context=context,
                draft_seconds=median(drafted) if drafted else None,
                verify_seconds={rows: median(times) for rows, times in taken.items()},
            )
        )
    for engine in engines:
        engine.truncate(0)
    return tuple(measured)


def costs_at(contexts: Sequence[ContextCosts], context: float) -> ContextCosts:
    """Costs at any context length, on the line between the nearest two measured ones."""
    known = sorted(contexts, key=lambda costs: costs.context)
    lengths = [costs.context for costs in known]

    def between(values: Sequence[float]) -> float:
        return float(np.interp(context, lengths, values))

    drafts = [costs.draft_seconds for costs in known if costs.draft_seconds is not None]
    widths = sorted(set.intersection(*(set(costs.verify_seconds) for costs in known)))
    return ContextCosts(
        context=round(context),
        draft_seconds=between(drafts) if len(drafts) == len(known) else None,
        verify_seconds={m: between([c.verify_seconds[m] for c in known]) for m in widths},
    )


def _timed(engine: Engine, token_ids: Sequence[int]) -> float:
    """Seconds of one pass that scores every row; the cache is as before."""
    length = engine.length
    rows = np.array([token_ids], np.int64)
    start = perf_counter()
    engine.forward(rows, len(token_ids))
    seconds = perf_counter() - start
    engine.truncate(length)
    return seconds


def _cycle(filler: Sequence[int], count: int) -> list[int]:
    return (list(filler) * (count // len(filler) + 1))[:count]
