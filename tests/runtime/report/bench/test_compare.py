"""Two benchmarks side by side: a verdict only where a test supports one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specdec.engines.errors import PackageError
from specdec.runtime import SamplingParams
from specdec.runtime.report.bench.compare import MIN_PAIRS, compare_table
from specdec.runtime.report.bench.contents import BenchReport
from specdec.runtime.report.bench.package import BenchSettings
from specdec.runtime.report.bench.sweep import sweep

VERDICT = 5
Changed = Callable[[int, float], float]


@pytest.fixture(scope="module")
def report(tiny_package: Path) -> BenchReport:
    texts = tuple(("chat", "abc"[: 1 + i % 3] + "d" * i) for i in range(8))
    params = SamplingParams(max_new_tokens=4)
    return sweep([tiny_package], BenchSettings(texts, params, draft_tokens=(2,), repeats=2))


def as_if(report: BenchReport, prompts: int) -> BenchReport:
    """The same runs, read as repeats of fewer prompts."""
    runs = len(report.results[0].rates) // prompts * prompts
    results = tuple(replace(result, rates=result.rates[:runs]) for result in report.results)
    return replace(report, results=results, settings={**report.settings, "prompts": prompts})


def changed(report: BenchReport, change: Changed) -> BenchReport:
    """The report with every speed changed, by its place among the runs."""
    results = tuple(
        replace(result, rates=tuple(change(i, rate) for i, rate in enumerate(result.rates)))
        for result in report.results
    )
    return replace(report, results=results)


def verdicts(first: BenchReport, second: BenchReport) -> list[str]:
    return [row[VERDICT] for row in compare_table(first, second).rows]


def test_a_report_beside_itself(report: BenchReport) -> None:
    table = compare_table(report, report)
    assert [row[3:6] for row in table.rows] == [("1.00 (1.00-1.00)", "1", "not apart")] * 2
    assert "Wilcoxon" in table.note


def test_every_prompt_faster(report: BenchReport) -> None:
    other = changed(report, lambda i, rate: rate * (1.2 + 0.01 * (i % 8)))
    assert verdicts(report, other) == ["faster", "faster"]
    assert verdicts(other, report) == ["slower", "slower"]
    assert [row[4] for row in compare_table(report, other).rows] == ["0.0078", "0.0078"]


def test_what_two_sessions_differ_by_is_no_verdict(report: BenchReport) -> None:
    assert verdicts(report, changed(report, lambda i, rate: rate * 1.02)) == ["not apart"] * 2


def test_scatter_is_no_verdict(report: BenchReport) -> None:
    scattered = changed(report, lambda i, rate: rate * (1.3 if i % 2 else 0.8))
    assert verdicts(report, scattered) == ["not apart"] * 2


def test_one_slow_repeat_changes_nothing(report: BenchReport) -> None:
    few = changed(as_if(report, 5), lambda i, rate: 100.0)
    disturbed = changed(few, lambda i, rate: rate / 5 if i < 5 else rate)
    assert [row[3] for row in compare_table(few, disturbed).rows] == ["1.00 (1.00-1.00)"] * 2


def test_too_few_prompts_say_what_is_missing(report: BenchReport) -> None:
    few = as_if(report, 2)
    assert (
        verdicts(few, changed(few, lambda i, rate: rate * 3))
        == [f"needs {MIN_PAIRS} prompts, has 2"] * 2
    )


def test_other_prompts_and_other_settings(report: BenchReport) -> None:
    settings = {**report.settings, "prompts_sha256": "0"}
    assert verdicts(report, replace(report, settings=settings)) == ["other prompts"] * 2
    other = replace(report, results=tuple(replace(r, context=7) for r in report.results))
    assert compare_table(report, other).rows == ()


@pytest.mark.parametrize(
    ("settings", "rates", "reason"),
    [
        ({"prompts": 0}, None, "B: settings.prompts is 0"),
        ({"prompts_sha256": None}, None, "prompts_sha256 None"),
        ({}, (1.0,) * 3, r"B: results\[0\].rates has 3 speeds of 8 prompts"),
        ({}, (), "rates has 0 speeds"),
        ({}, (0.0,) * 8, "one above 0"),
    ],
)
def test_a_report_that_cannot_be_paired(
    report: BenchReport, settings: dict[str, object], rates: tuple[float, ...] | None, reason: str
) -> None:
    broken = replace(report, settings={**report.settings, **settings})
    if rates is not None:
        results = tuple(replace(result, rates=rates) for result in report.results)
        broken = replace(broken, results=results)
    with pytest.raises(PackageError, match=reason):
        compare_table(report, broken)


def test_p_values_of_unrelated_speeds_are_uniform() -> None:
    """At most the level's share of pairs that differ by chance alone is called apart."""
    from specdec.runtime.report.measuring.paired import signed_rank_p

    generator = np.random.default_rng(0)
    found = [signed_rank_p(list(generator.normal(size=8))) for _ in range(2000)]
    assert 0.02 < np.mean(np.array(found) < 0.05) < 0.06
