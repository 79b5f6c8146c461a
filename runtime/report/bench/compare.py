"""Sets two benchmarks side by side, with a verdict only where a test supports one.

The unit is the prompt: the median over its repeats in A and in B makes a pair. B is called
faster or slower when Wilcoxon's signed-rank test over the prompts gives p < 0.05 and the median
ratio is more than 3 % from 1. The second condition is for what no test over one session each
can exclude: the machine itself may have changed by that much between the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specdec.engines.errors import PackageError
from specdec.runtime.report.bench.contents import BenchReport, BenchResult
from specdec.runtime.report.bench.tables import heading, way
from specdec.runtime.report.drawing.tables import Table
from specdec.runtime.report.measuring.intervals import bootstrap_interval, median
from specdec.runtime.report.measuring.paired import signed_rank_p

__all__ = ["MIN_PAIRS", "Comparison", "compare_results", "compare_table"]

MIN_PAIRS = 6
"""Prompts below which no result can reach the level: 2 / 2**5 is 0.06."""
LEVEL = 0.05
SESSION_DRIFT = 0.03
"""Ratios this close to 1 are not told apart."""


@dataclass(frozen=True)
class Comparison:
    """One setting in both benchmarks."""

    ratio: float
    """Median over prompts of the speed of B over that of A."""
    low: float
    high: float
    """Bootstrap interval of `ratio`, 95 %."""
    p_value: float
    verdict: str
    """"faster" or "slower" for B, "not apart", or what is missing to say."""


def compare_results(
    a: BenchResult, b: BenchResult, first: BenchReport, second: BenchReport
) -> Comparison:
    """Compare one way of generating in two reports.

    Args:
        a: a result of `first`.
        b: the result of `second` with the same settings.
        first: holds the number of prompts and repeats.
        second: as `first`.
    """
    same_prompts = first.settings["prompts_sha256"] == second.settings["prompts_sha256"]
    if not same_prompts:
        ratio = b.tokens_per_second.median / a.tokens_per_second.median
        return Comparison(ratio, math.nan, math.nan, math.nan, "other prompts")
    ours = _by_prompt(a, first.settings["prompts"])
    theirs = _by_prompt(b, second.settings["prompts"])
    ratios = np.array([y / x for x, y in zip(ours, theirs, strict=True)])
    low, high = bootstrap_interval(ratios, lambda values: float(np.median(values)))
    ratio = float(np.median(ratios))
    p_value = signed_rank_p([float(x) for x in np.log(ratios)])
    return Comparison(ratio, low, high, p_value, _verdict(len(ratios), ratio, p_value))


def compare_table(first: BenchReport, second: BenchReport) -> Table:
    """The results that both have, speeds side by side.

    Raises:
        PackageError: a report does not say which runs belong to which prompt.
    """
    _check(first, "A")
    _check(second, "B")
    others = {_key(result): result for result in second.results}
    rows = []
    for result in first.results:
        other = others.get(_key(result))
        if other is not None:
            found = compare_results(result, other, first, second)
            rows.append(_row(result, other, found))
    return Table(
        "A against B, tokens/s",
        ("K", "A", "B", "B / A", "p", "B is", "A gain", "B gain"),
        tuple(rows),
        f"A: {_origin(first)}. B: {_origin(second)}. A and B: medians over runs. B / A: median of "
        "ratios by prompt with its 95 % bootstrap interval. p: Wilcoxon's signed-rank test over "
        f"prompts. B is faster or slower where p < {LEVEL} and the ratio is more than "
        f"{SESSION_DRIFT:.0%} from 1; it takes {MIN_PAIRS} prompts to tell. Gain: over plain "
        "decoding.",
    )


def _check(report: BenchReport, name: str) -> None:
    prompts, checksum = (report.settings.get(key) for key in ("prompts", "prompts_sha256"))
    if type(prompts) is not int or prompts < 1 or not isinstance(checksum, str):
        raise PackageError(
            f"{name}: settings.prompts is {prompts!r} and prompts_sha256 {checksum!r}; allowed is "
            "a number above 0 and a checksum, as specdec-bench writes them"
        )
    for i, result in enumerate(report.results):
        if not result.rates or len(result.rates) % prompts or min(result.rates) <= 0.0:
            raise PackageError(
                f"{name}: results[{i}].rates has {len(result.rates)} speeds of {prompts} prompts; "
                "allowed is one above 0 for each prompt and repeat"
            )


def _verdict(pairs: int, ratio: float, p_value: float) -> str:
    if pairs < MIN_PAIRS:
        return f"needs {MIN_PAIRS} prompts, has {pairs}"
    if p_value >= LEVEL or abs(ratio - 1.0) <= SESSION_DRIFT:
        return "not apart"
    return "faster" if ratio > 1.0 else "slower"


def _by_prompt(result: BenchResult, prompts: int) -> list[float]:
    """Median over the repeats of each prompt, tokens per second."""
    return [median(result.rates[index::prompts]) for index in range(prompts)]


def _row(a: BenchResult, b: BenchResult, found: Comparison) -> tuple[str, ...]:
    setting = heading(a).partition("), ")[2]
    paired = not math.isnan(found.low)
    return (
        ", ".join(filter(None, (way(a), setting))),
        f"{a.tokens_per_second.median:.1f}",
        f"{b.tokens_per_second.median:.1f}",
        f"{found.ratio:.2f}" + (f" ({found.low:.2f}-{found.high:.2f})" if paired else ""),
        f"{found.p_value:.2g}" if paired else "",
        found.verdict,
        "" if a.speedup is None else f"{a.speedup.median:.2f}",
        "" if b.speedup is None else f"{b.speedup.median:.2f}",
    )


def _key(result: BenchResult) -> tuple[object, ...]:
    return (
        result.num_threads,
        result.context,
        result.num_draft_tokens,
        result.drafter,
        result.simulated_acceptance,
    )


def _origin(report: BenchReport) -> str:
    names = ", ".join(dict.fromkeys(result.package for result in report.results))
    return f"{names} on {report.machine.cpu}, {report.created}"
