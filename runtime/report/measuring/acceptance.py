"""Acceptance by position and by category, counted from runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec.runtime.report.contents import Acceptance
from specdec.runtime.report.measuring.runs import Run

__all__ = ["ALL", "count_acceptance", "overall_rate"]

ALL = "all"
"""The name under which every category is counted together."""


def count_acceptance(runs: Sequence[Run], temperature: float) -> tuple[Acceptance, ...]:
    """Count runs of one variant: all together first, then each category."""
    categories = list(dict.fromkeys(run.category for run in runs))
    counted = [_count(ALL, runs, temperature)]
    if len(categories) > 1:
        for category in categories:
            own = [run for run in runs if run.category == category]
            counted.append(_count(category, own, temperature))
    return tuple(counted)


def overall_rate(acceptance: Acceptance) -> float:
    """Accepted over evaluated, all positions; 0 without any."""
    evaluated = sum(pair[0] for pair in acceptance.by_position)
    accepted = sum(pair[1] for pair in acceptance.by_position)
    return accepted / evaluated if evaluated else 0.0


def _count(category: str, runs: Iterable[Run], temperature: float) -> Acceptance:
    positions: list[list[int]] = []
    rounds = 0
    for run in runs:
        rounds += run.stats.rounds
        for i, (evaluated, accepted) in enumerate(run.stats.acceptance_by_position):
            if i == len(positions):
                positions.append([0, 0])
            positions[i][0] += evaluated
            positions[i][1] += accepted
    return Acceptance(
        category=category,
        temperature=temperature,
        rounds=rounds,
        by_position=tuple((pair[0], pair[1]) for pair in positions),
    )
