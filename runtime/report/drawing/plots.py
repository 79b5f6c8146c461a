"""The charts of a report, each with the caption that says how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.runtime.report.contents import Report
from specdec.runtime.report.drawing.charts import Chart, nice_ticks, stacked_bars
from specdec.runtime.report.drawing.words import mode_words
from specdec.runtime.report.measuring.acceptance import ALL
from specdec.runtime.report.model import acceptance_rates

__all__ = ["Plot", "draw_plots"]

_SHOWN_TICKS = 9


@dataclass(frozen=True)
class Plot:
    """A drawing and its words."""

    heading: str
    svg: str
    legend: tuple[tuple[int, str], ...]
    """(series, name)."""
    caption: str


def draw_plots(report: Report) -> list[Plot]:
    """Every chart this report has figures for."""
    drawn = [_speedup(report), _verify_curve(report), _acceptance(report), _split(report)]
    return [plot for plot in [*drawn, _memory(report)] if plot is not None]


def _verify_curve(report: Report) -> Plot:
    contexts = report.costs.contexts[:3]
    widths = sorted(contexts[0].verify_seconds)
    highest = max(1e3 * max(costs.verify_seconds.values()) for costs in contexts)
    chart = Chart(
        "Time of a target pass by its number of rows",
        "rows in one pass (K + 1)",
        "milliseconds",
        _whole_ticks(widths),
        _ticks(nice_ticks(highest)),
    )
    legend = []
    for series, costs in enumerate(contexts):
        chart.line([(m, 1e3 * s) for m, s in sorted(costs.verify_seconds.items())], series)
        legend.append((series, f"after {costs.context} tokens"))
    draft = contexts[0].draft_seconds
    if draft is not None:
        chart.line([(m, 1e3 * draft) for m in (widths[0], widths[-1])], 3, dashed=True)
        legend.append((3, "one draft step"))
    first = contexts[0].verify_seconds
    growth = first[widths[-1]] / first[1]
    return Plot(
        "Verify curve",
        chart.render(),
        tuple(legend),
        f"Checking {widths[-1]} positions takes {growth:.1f} times as long as one. The flatter "
        "this line and the lower the dashed one, the more speculation can gain.",
    )


def _speedup(report: Report) -> Plot | None:
    predictions = [p for p in report.predictions if p.category == ALL]
    measured = [m for m in report.measured if m.category == ALL and m.predicted is not None]
    if not predictions:
        return None
    values = [speedup for p in predictions for speedup in p.speedup.values()]
    values += [bound for m in measured for bound in (m.low, m.high)]
    lengths = sorted(predictions[0].speedup)
    chart = Chart(
        "Speed-up by number of drafted tokens",
        "drafted tokens per round (K)",
        "times plain decoding",
        _whole_ticks(lengths),
        _ticks(nice_ticks(max(values), min(1.0, *values))),
    )
    chart.level(1.0, "plain decoding")
    legend = []
    for series, prediction in enumerate(predictions):
        chart.line(sorted(prediction.speedup.items()), series)
        legend.append((series, f"{mode_words(prediction.temperature)}, predicted"))
    for m in measured:
        series = next(i for i, p in enumerate(predictions) if p.temperature == m.temperature)
        chart.measured(float(m.num_draft_tokens), m.speedup, m.low, m.high, series)
    return Plot(
        "Speed-up by K",
        chart.render(),
        tuple(legend),
        "Lines follow from costs and acceptance, for long texts; the large points are the "
        "measured speed of the whole loop with their 95 % interval.",
    )


def _acceptance(report: Report) -> Plot | None:
    counted = [a for a in report.quality.acceptance if a.category == ALL and a.by_position]
    if not counted:
        return None
    positions = range(1, max(len(a.by_position) for a in counted) + 1)
    chart = Chart(
        "Acceptance by position in the round",
        "position of the drafted token",
        "accepted, %",
        _whole_ticks(list(positions)),
        _ticks([0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
    )
    legend = []
    for series, row in enumerate(counted):
        rates = acceptance_rates(row.by_position, len(row.by_position))
        chart.line([(i, 100.0 * rate) for i, rate in enumerate(rates, 1)], series)
        legend.append((series, mode_words(row.temperature)))
    return Plot(
        "Acceptance",
        chart.render(),
        tuple(legend),
        "How often the target keeps a drafted token, when it kept those before it.",
    )


def _split(report: Report) -> Plot | None:
    split = report.split
    if split is None or not report.predictions:
        return None
    plain = report.costs.contexts[0].verify_seconds[1] + report.costs.host_seconds_plain
    total = split.draft_seconds + split.verify_seconds + split.host_seconds
    parts = [(split.draft_seconds, 1), (split.verify_seconds, 0), (split.host_seconds, 2)]
    svg = stacked_bars(
        "Time of a round against the same tokens decoded plainly",
        [
            (f"a round with K = {split.num_draft_tokens}: {total * 1e3:.1f} ms", parts),
            (
                f"{split.tokens:.1f} plain steps: {plain * split.tokens * 1e3:.1f} ms",
                [(plain * split.tokens, 0)],
            ),
        ],
    )
    return Plot(
        "Where the time goes",
        svg,
        ((1, "draft"), (0, "target"), (2, "host")),
        f"A round gives {split.tokens:.1f} tokens on average: draft "
        f"{split.draft_seconds * 1e3:.1f} ms, target {split.verify_seconds * 1e3:.1f} ms, "
        f"sampling and checks {split.host_seconds * 1e3:.2f} ms.",
    )


def _memory(report: Report) -> Plot | None:
    memory = report.costs.memory
    points = memory.by_context
    if len(points) < 2:
        return None
    weights = (memory.target_weights + memory.draft_weights) / 1e9
    unit, name = (1.0, "GB") if points[-1].bytes >= 1e9 else (1e3, "MB")
    chart = Chart(
        "Memory by context length",
        "tokens in the cache",
        name,
        [(i / 4 * memory.capacity, f"{i / 4 * memory.capacity:.0f}") for i in range(5)],
        _ticks(nice_ticks(points[-1].bytes / 1e9 * unit)),
    )
    line = [(0.0, weights * unit)]
    line += [(float(point.context), point.bytes / 1e9 * unit) for point in points]
    chart.area([(x, weights * unit) for x, _ in line], 0.0, 0)
    chart.area(line, weights * unit, 1)
    return Plot(
        "Memory",
        chart.render(),
        ((0, "weights"), (1, "keys and values")),
        f"The cache is allocated whole when the package is loaded, for {memory.capacity} tokens: "
        "a smaller --max-length at export needs less.",
    )


def _whole_ticks(values: Sequence[int]) -> list[tuple[float, str]]:
    """Every value or, when they are many, every second or fourth; the last always."""
    step = max(1, -(-len(values) // _SHOWN_TICKS))
    last = values[-1]
    shown = [v for v in values[::step] if last - v >= step]
    return [(float(v), str(v)) for v in [*shown, last]]


def _ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    return [(value, f"{value:g}") for value in values]
