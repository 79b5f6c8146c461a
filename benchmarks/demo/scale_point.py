"""One point of a scale: plain decoding, fixed numbers of drafted tokens and "auto", in turn.

For each K the measured speed-up stands beside the formula's, in the costs and the acceptance
of the same runs: S(K) = E(K) / (K c + v), with c the time of a drafted token and v the time of
a pass over K + 1 rows, both in units of a plain step, and E(K) the tokens a round should
commit. What is missing to S(K) is host time and rounds that the end cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from specdec.runtime import SamplingParams, SpeculativeDecoder
from specdec.runtime.decoding.stats import GenerationStats
from specdec.runtime.report.measuring.runs import BenchPrompt, Run, Variant, play_interleaved
from specdec.runtime.report.model import acceptance_rates, expected_tokens

__all__ = ["HEADER", "Point", "formula", "measure_point", "point"]

HEADER = (
    "| {axis} | K | plain tokens/s | speculative tokens/s | c | T(K+1)/T(1) | acceptance "
    "| speed-up | S(K) | of S(K) |\n|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Point:
    """What one K did at one place of the scale."""

    setting: str
    plain_speed: float
    """Tokens per second, the reading of the prompt excluded."""
    speed: float
    draft_cost: float
    """c; 0 when nothing was drafted."""
    verify_cost: float
    """Target pass of a round over a plain step."""
    acceptance: float
    speedup: float
    predicted: float | None
    """S(K); None for "auto", which has no single K."""

    def row(self, place: object) -> str:
        """A line of the Markdown table."""
        told = ["-", "-"]
        if self.predicted is not None:
            told = [f"{self.predicted:.2f}", f"{self.speedup / self.predicted:.0%}"]
        cells = [
            str(place),
            self.setting,
            f"{self.plain_speed:.1f}",
            f"{self.speed:.1f}",
            f"{self.draft_cost:.2f}",
            f"{self.verify_cost:.2f}",
            f"{self.acceptance:.2f}",
            f"{self.speedup:.2f}",
            *told,
        ]
        return f"| {' | '.join(cells)} |"


def measure_point(
    decoder: SpeculativeDecoder,
    prompt: Sequence[int],
    num_draft_tokens: Sequence[int],
    new_tokens: int,
    repeats: int,
) -> tuple[list[Point], tuple[int, ...]]:
    """Measure one place, greedy, without stopping at an end token.

    Returns:
        (a point for each K and for "auto", the text of plain decoding).
    """
    settings: tuple[int | Literal["auto"], ...] = (0, *num_draft_tokens, "auto")
    variants = [
        Variant(
            str(setting),
            decoder,
            SamplingParams(max_new_tokens=new_tokens, num_draft_tokens=setting, ignore_eos=True),
        )
        for setting in settings
    ]
    runs = play_interleaved([BenchPrompt("scale", tuple(prompt))], variants, repeats + 1)
    runs = [run for run in runs if run.repeat > 0]  # the first turn warms up
    plain = [run for run in runs if run.variant == "0"]
    points = []
    for setting in settings[1:]:
        points.append(point(setting, plain, [run for run in runs if run.variant == str(setting)]))
    return points, plain[0].token_ids


def point(setting: int | str, plain: Sequence[Run], drafted: Sequence[Run]) -> Point:
    """Medians over the repeats; speeds are compared repeat by repeat."""
    step = median(one.stats.verify_seconds / one.stats.rounds for one in plain)
    cost = median(_draft_seconds(one.stats) for one in drafted) / step
    verify = median(one.stats.verify_seconds / one.stats.rounds for one in drafted) / step
    predicted = None
    if isinstance(setting, int):
        rates = acceptance_rates(drafted[0].stats.acceptance_by_position, setting)
        predicted = formula(rates, cost, verify)
    pairs = zip(plain, drafted, strict=True)
    return Point(
        setting=str(setting),
        plain_speed=median(one.stats.tokens_per_second for one in plain),
        speed=median(one.stats.tokens_per_second for one in drafted),
        draft_cost=cost,
        verify_cost=verify,
        acceptance=drafted[0].stats.acceptance_rate,
        speedup=median(b.stats.tokens_per_second / a.stats.tokens_per_second for a, b in pairs),
        predicted=predicted,
    )


def formula(rates: Sequence[float], draft_cost: float, verify_cost: float) -> float:
    """S(K) with K = len(rates), costs in units of a plain step."""
    return expected_tokens(rates)[-1] / (len(rates) * draft_cost + verify_cost)


def _draft_seconds(stats: GenerationStats) -> float:
    return stats.draft_seconds / stats.drafted if stats.drafted else 0.0
