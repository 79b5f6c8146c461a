"""A benchmark as tables."""

from __future__ import annotations

from specdec.runtime.report.bench.contents import BenchReport, BenchResult, Interval
from specdec.runtime.report.drawing.tables import Table
from specdec.runtime.report.drawing.words import size_words

__all__ = ["bench_tables", "heading", "way"]


def bench_tables(report: BenchReport) -> list[Table]:
    """A table for each package and setting, a row for each way of generating; then the notes."""
    energy = ", ".join(report.energy_sources)
    columns = ["K", "tokens/s", "speed-up", "first", "pauses", "kept", "tok/rd", "host", "GB/s"]
    if energy:
        columns.append("J/tok")
    grouped: dict[str, list[BenchResult]] = {}
    for result in report.results:
        grouped.setdefault(heading(result), []).append(result)
    tables = [
        Table(heading, tuple(columns), tuple(_row(result, bool(energy)) for result in results))
        for heading, results in grouped.items()
    ]
    last = tables[-1]
    return [*tables[:-1], Table(last.heading, last.columns, last.rows, _notes(report))]


def _notes(report: BenchReport) -> str:
    peak = "unknown" if report.peak_memory is None else size_words(report.peak_memory)
    names = ", ".join(report.energy_sources)
    energy = f"Energy of the machine from {names}." if names else "Energy: no counter to read here."
    copying = report.machine.copy_bytes_per_second / 1e9
    return (
        "K: drafted tokens per round, 0 is plain decoding. tokens/s and speed-up: medians with "
        "95 % intervals, against plain runs of the same prompts in turn with them. first: ms to "
        "the first token. pauses: ms between arrivals of text, 50th and 99th percentile. kept: "
        "drafted tokens accepted. tok/rd: tokens per round. host: time outside the engines. GB/s: "
        f"weights the target reads; copying memory runs at {copying:.1f}. Peak memory {peak}. "
        f"{energy}"
    )


def _row(result: BenchResult, with_energy: bool) -> tuple[str, ...]:
    first, pauses = result.time_to_first_token, result.inter_token
    accepted = "" if result.acceptance_rate is None else f"{result.acceptance_rate:.0%}"
    cells = [
        way(result),
        _with_interval(result.tokens_per_second, 1),
        _speedup(result),
        f"{first.median * 1e3:.0f}",
        f"{pauses.p50 * 1e3:.0f}/{pauses.p99 * 1e3:.0f}",
        accepted,
        f"{result.tokens_per_round:.2f}",
        f"{result.host_share:.0%}",
        f"{result.bytes_per_second / 1e9:.1f}",
    ]
    if with_energy:
        joules = result.joules_per_token
        cells.append("" if joules is None else f"{joules:.2f}")
    return tuple(cells)


def heading(result: BenchResult) -> str:
    """The package and what its runs have in common."""
    parts = [f"{result.package} ({result.precision})"]
    if result.num_threads is not None:
        parts.append(f"{result.num_threads} threads")
    if result.context is not None:
        parts.append(f"context {result.context}")
    if result.drafter not in ("auto", "simulated"):
        parts.append(result.drafter)
    return ", ".join(parts)


def way(result: BenchResult) -> str:
    """How many tokens were drafted, and what acceptance was forced."""
    simulated = result.simulated_acceptance
    at = "" if simulated is None else f" @ {simulated:g}"
    return f"{result.num_draft_tokens}{at}"


def _speedup(result: BenchResult) -> str:
    return "" if result.speedup is None else _with_interval(result.speedup, 2)


def _with_interval(interval: Interval, digits: int) -> str:
    if interval.median >= 1000.0:
        digits = 0
    low, high = f"{interval.low:.{digits}f}", f"{interval.high:.{digits}f}"
    return f"{interval.median:.{digits}f} ({low}-{high})"
