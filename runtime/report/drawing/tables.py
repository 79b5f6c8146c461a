"""The tables of a report as text, for the terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.runtime.report.contents import Agreement, Report
from specdec.runtime.report.drawing.words import size_words

__all__ = ["Table", "report_tables"]

_ROWS = (1, 2, 3, 5, 9, 17)


@dataclass(frozen=True)
class Table:
    """Cells as text, the first column names the row."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def report_tables(report: Report) -> list[Table]:
    """Every table this report has figures for."""
    tables = [
        _speeds(report),
        _alternatives(report),
        _costs(report),
        _agreements(report),
        _candidates(report),
    ]
    return [table for table in tables if table.rows]


def _speeds(report: Report) -> Table:
    rows = [
        (
            row.category,
            "greedy" if row.temperature == 0.0 else f"T {row.temperature:g}",
            row.num_draft_tokens,
            f"{row.plain_tokens_per_second:.1f}",
            f"{row.tokens_per_second:.1f}",
            f"{row.speedup:.2f}",
            f"{row.low:.2f}-{row.high:.2f}" if row.runs > 1 else "one run",
            "" if row.predicted is None else f"{row.predicted:.2f}",
        )
        for row in report.measured
    ]
    return Table(
        "Speed",
        ("prompts", "mode", "K", "plain", "drafted", "speed-up", "95 %", "predicted"),
        tuple(rows),
        "Tokens per second without and with the draft, paired and interleaved; T: sampled at this "
        "temperature. The prediction is for texts of the same length.",
    )


def _alternatives(report: Report) -> Table:
    rows = [
        (
            row.name,
            f"{row.tokens_per_second:.1f}",
            f"{row.relative_speed:.2f}",
            f"{row.overlap:.3f}",
            f"{row.kl_divergence:.2g}",
            f"{row.same_tokens:.0f} of {row.of_tokens:.0f}",
        )
        for row in report.alternatives
    ]
    return Table(
        "Alternatives",
        ("what", "tokens/s", "speed", "overlap", "KL", "same greedy tokens"),
        tuple(rows) if len(rows) > 1 else (),
        "Overlap and KL compare its next-token distribution with the target's: equal ones have 1 "
        "and 0.",
    )


def _costs(report: Report) -> Table:
    shown = [m for m in _ROWS if m in report.costs.contexts[0].verify_seconds]
    rows = []
    for at in report.costs.contexts:
        draft = "" if at.draft_seconds is None else f"{at.draft_seconds * 1e3:.2f}"
        cells = [f"{at.verify_seconds[m] * 1e3:.1f}" for m in shown]
        rows.append((str(at.context), draft, *cells))
    memory, costs = report.costs.memory, report.costs
    return Table(
        "Milliseconds of a pass",
        ("context", "draft step", *(f"{m} row" if m == 1 else f"{m} rows" for m in shown)),
        tuple(rows),
        f"Loads in {costs.load_seconds:.1f} s. Weights: target {size_words(memory.target_weights)}"
        f", draft {size_words(memory.draft_weights)}; {memory.kv_per_token / 1e3:.0f} kB of keys "
        f"and values a token. A plain step reads {size_words(costs.target_bytes_per_pass)} of "
        f"weights at {costs.target_bytes_per_second / 1e9:.1f} GB/s; copying memory runs at "
        f"{report.machine.copy_bytes_per_second / 1e9:.1f} GB/s here.",
    )


def _agreements(report: Report) -> Table:
    quality = report.quality
    named: list[tuple[str, Agreement | None]] = [
        ("target to original", quality.target_vs_original),
        ("draft to target", quality.draft_vs_target),
        ("draft alone to target", quality.draft_alone_vs_target),
    ]
    greedy, parity = quality.greedy, quality.parity
    note = (
        f"One row and {parity.rows} rows a pass differ by at most "
        f"{parity.max_logit_difference:.2g} in logits that span {parity.logit_span:.3g}."
    )
    if greedy is not None:
        note += f" Greedy texts equal to the target's: {greedy.equal} of {greedy.texts}."
    return Table(
        "Agreement on our own texts",
        ("of", "same choice", "overlap", "KL", "perplexity", "reference"),
        tuple(
            (
                name,
                f"{figures.argmax_agreement:.3f}",
                f"{figures.overlap:.3f}",
                f"{figures.kl_divergence:.2g}",
                f"{figures.perplexity:.2f}",
                f"{figures.reference_perplexity:.2f}",
            )
            for name, figures in named
            if figures is not None
        ),
        note,
    )


def _candidates(report: Report) -> Table:
    rows = []
    for row in report.candidates:
        if row.problem is not None:
            rows.append((row.recipe, "", "", "", "", row.problem))
            continue
        rows.append(
            (
                row.recipe,
                size_words(row.bytes),
                f"{row.draft_seconds * 1e3:.2f}",
                f"{row.acceptance_rate:.1%}",
                str(row.num_draft_tokens),
                f"{row.speedup:.2f}",
            )
        )
    return Table(
        "Draft recipes tried",
        ("recipe", "size", "step, ms", "accepted", "best K", "predicted speed-up"),
        tuple(rows),
        "Each built from the same weights and run beside the target; the first is in the package.",
    )
