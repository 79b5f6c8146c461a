"""Predicted and measured speed-ups, from the same runs and curves.

The prediction uses what was timed engine by engine and what was accepted; the measurement is
the whole loop against plain decoding. Their agreement validates the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdec.runtime.report.contents import (
    Acceptance,
    ContextCosts,
    Measured,
    Prediction,
    RoundSplit,
)
from specdec.runtime.report.measuring.acceptance import ALL, overall_rate
from specdec.runtime.report.measuring.curves import costs_at
from specdec.runtime.report.measuring.intervals import bootstrap_interval, median, pooled_ratio
from specdec.runtime.report.measuring.runs import Run, decode_seconds
from specdec.runtime.report.model import SpeedModel, acceptance_rates, break_even_acceptance

__all__ = ["HostCosts", "host_costs", "measured_speed", "predict", "round_split", "speed_model"]


@dataclass(frozen=True)
class HostCosts:
    """Seconds outside the engines: h(K) = plain + K * slope."""

    plain: float
    slope: float

    def per_round(self, num_draft_tokens: int) -> float:
        """h(K)."""
        return max(self.plain + num_draft_tokens * self.slope, 0.0)


def host_costs(plain: Sequence[Run], drafted: Sequence[Run]) -> HostCosts:
    """Fit h(K) to plain runs and to speculative ones, by medians over the runs."""
    base = median([run.stats.host_seconds / run.stats.rounds for run in plain])
    slopes = [
        (run.stats.host_seconds / run.stats.rounds - base) * run.stats.rounds / run.stats.drafted
        for run in drafted
        if run.stats.drafted
    ]
    return HostCosts(base, max(median(slopes), 0.0) if slopes else 0.0)


def speed_model(
    contexts: Sequence[ContextCosts], runs: Sequence[Run], host: HostCosts
) -> SpeedModel:
    """C(0), C(1), ... at the context the runs had on average.

    Args:
        contexts: measured curves, with draft steps.
        runs: whose prompts and texts give the context length.
        host: time outside the engines.
    """
    lengths = [run.stats.prompt_tokens + run.stats.new_tokens / 2 for run in runs]
    costs = costs_at(contexts, sum(lengths) / len(lengths))
    assert costs.draft_seconds is not None, "a model of speculation needs draft steps"
    widths = sorted(costs.verify_seconds)
    times = [costs.verify_seconds[m] for m in widths]
    draft = costs.draft_seconds
    return SpeedModel(
        tuple(
            k * draft + float(np.interp(k + 1, widths, times)) + host.per_round(k)
            for k in range(widths[-1])
        ),
        draft,
    )


def predict(model: SpeedModel, acceptance: Acceptance) -> Prediction:
    """Speed-up of every K for one category."""
    rates = acceptance_rates(acceptance.by_position, model.largest)
    best = model.best(rates)
    return Prediction(
        category=acceptance.category,
        temperature=acceptance.temperature,
        speedup={k: model.speedup(rates, k) for k in range(1, model.largest + 1)},
        best=best,
        acceptance_rate=overall_rate(acceptance),
        break_even=break_even_acceptance(model, best),
    )


def measured_speed(
    plain: Sequence[Run],
    other: Sequence[Run],
    name: str,
    temperature: float,
    model: tuple[SpeedModel, Sequence[Acceptance], int] | None,
) -> tuple[Measured, ...]:
    """Compare paired runs, all together and by category.

    Args:
        plain: plain runs.
        other: runs of the same prompts and repeats, in the same order.
        name: number of draft tokens, or "auto".
        temperature: of both.
        model: costs, acceptance by category and K to predict with; None predicts nothing.
    """
    categories = list(dict.fromkeys(run.category for run in plain))
    measured = []
    for category in [ALL, *(categories if len(categories) > 1 else [])]:
        pairs = [
            (a, b)
            for a, b in zip(plain, other, strict=True)
            if category in (ALL, a.category) and a.stats.new_tokens and b.stats.new_tokens
        ]
        if pairs:
            predicted = None if model is None else _predicted(pairs, category, model)
            measured.append(_compare(pairs, category, name, temperature, predicted))
    return tuple(measured)


def round_split(runs: Sequence[Run], num_draft_tokens: int) -> RoundSplit | None:
    """Where the time of a round goes, over all runs; None without a round."""
    rounds = sum(run.stats.rounds for run in runs)
    if not rounds:
        return None
    return RoundSplit(
        num_draft_tokens=num_draft_tokens,
        tokens=sum(run.stats.new_tokens for run in runs) / rounds,
        draft_seconds=sum(run.stats.draft_seconds for run in runs) / rounds,
        verify_seconds=sum(run.stats.verify_seconds for run in runs) / rounds,
        host_seconds=sum(run.stats.host_seconds for run in runs) / rounds,
    )


def _compare(
    pairs: Sequence[tuple[Run, Run]],
    category: str,
    name: str,
    temperature: float,
    predicted: float | None,
) -> Measured:
    """Speed-up = mean seconds per token of plain over the other's, runs weighted by tokens."""
    per_token = np.array(
        [
            (
                decode_seconds(a) / a.stats.new_tokens * b.stats.new_tokens,
                decode_seconds(b),
            )
            for a, b in pairs
        ]
    )
    low, high = bootstrap_interval(per_token, pooled_ratio)
    tokens = sum(b.stats.new_tokens for _, b in pairs)
    plain_tokens = sum(a.stats.new_tokens for a, _ in pairs)
    return Measured(
        category=category,
        temperature=temperature,
        num_draft_tokens=name,
        runs=len(pairs),
        tokens=tokens,
        plain_tokens_per_second=plain_tokens / sum(decode_seconds(a) for a, _ in pairs),
        tokens_per_second=tokens / sum(decode_seconds(b) for _, b in pairs),
        speedup=pooled_ratio(per_token),
        low=low,
        high=high,
        predicted=predicted,
    )


def _predicted(
    pairs: Sequence[tuple[Run, Run]],
    category: str,
    model: tuple[SpeedModel, Sequence[Acceptance], int],
) -> float:
    """Expected speed-up for texts of the lengths of these runs."""
    costs, acceptances, k = model
    own = next((a for a in acceptances if a.category == category), acceptances[0])
    rates = acceptance_rates(own.by_position, costs.largest)
    lengths = [run.stats.new_tokens for _, run in pairs]
    expected = {length: costs.text_seconds(rates, k, length) for length in set(lengths)}
    return sum(lengths) * costs.round_seconds[0] / sum(expected[length] for length in lengths)
