"""A report on the terminal: what the package is, the verdict, and the figures behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from specdec.engines.package.manifest import GenerationEntry
    from specdec.runtime.report.contents import Report
    from specdec.runtime.report.drawing.tables import Table
    from specdec.runtime.report.inspection import Inspection

__all__ = ["print_inspection", "print_report", "print_table"]

_STYLES = {"worth it": "green", "not worth it": "yellow", "unsafe": "red", "no draft": "yellow"}


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Print all of it."""
    from specdec.runtime.report.drawing.words import engine_words, size_words

    source, draft = inspection.source, inspection.draft
    made = f"{source.get('created', '')} by specdec {inspection.specdec_version}"
    drafted = "none"
    if draft is not None:
        drafted = f"{source.get('draft', 'unknown')}: {engine_words(draft)}"
    rows = [
        ("package", f"{inspection.name}, {size_words(inspection.size)}"),
        ("made", made.strip()),
        ("target", f"{source.get('target', 'unknown')}: {engine_words(inspection.target)}"),
        ("draft", drafted),
        ("engine", ", ".join(dict.fromkeys(inspection.engines.values()))),
        *(("weights", weights.words) for weights in inspection.weights),
        *_defaults(inspection.generation),
        *(("note", note) for note in inspection.notes),
    ]
    _pairs(console, rows)
    if inspection.report is None:
        _line(console, "No report yet: specdec-inspect --measure short makes one.", "yellow")
        return
    if not inspection.measured_here:
        notice = "This report is of another machine; --measure short measures this one."
        _line(console, notice, "yellow")
    print_report(console, inspection.report)


def _defaults(generation: GenerationEntry) -> Iterable[tuple[str, str]]:
    """The model's own generation defaults, as far as it has any."""
    if generation.sampling:
        listed = ", ".join(f"{name} {value:g}" for name, value in generation.sampling.items())
        yield "defaults", f"{listed} (with --model-defaults)"
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        ids = getattr(generation, name)
        if ids:
            when = " as the first token" if name.startswith("begin") else ""
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            yield "bans", f"{len(ids)} tokens{when}: {shown}"
    if generation.not_honoured:
        yield "ignored", f"{', '.join(generation.not_honoured)} of the model's own settings"


def print_report(console: Console, report: Report) -> None:
    """Print the verdict, then the figures."""
    from specdec.runtime.report.drawing.tables import report_tables

    verdict, machine = report.verdict, report.machine
    console.print()
    _line(console, verdict.headline, f"bold {_STYLES[verdict.decision]}")
    for line in (*verdict.reasons, *verdict.changes):
        _pairs(console, [(" -", line)])
    console.print()
    for table in report_tables(report):
        print_table(console, table)
    measured = (
        f"Measured ({report.level}) {report.created} on {machine.cpu}, {machine.cores} cores, "
        f"{machine.system}, ONNX Runtime {machine.onnxruntime}."
    )
    _line(console, measured, "dim")


def print_table(console: Console, table: Table) -> None:
    """Print one table and its note."""
    from rich import box
    from rich.table import Table as RichTable

    drawn = RichTable(
        title=table.heading,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for i, name in enumerate(table.columns):
        drawn.add_column(name, justify="left" if i == 0 else "right")
    for row in table.rows:
        drawn.add_row(*(_text(cell) for cell in row))
    console.print(drawn)
    if table.note:
        _line(console, table.note, "dim")
    console.print()


def _pairs(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, _text(value))
    console.print(grid)


def _line(console: Console, text: str, style: str) -> None:
    console.print(_text(text), style=style)


def _text(value: str) -> Any:
    """Text as it is: what a package says is no markup."""
    from rich.text import Text

    return Text(value)
