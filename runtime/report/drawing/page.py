"""The report as one HTML page: no script, no network, light and dark, phone and desktop.

Everything a package says about itself is escaped, and the page forbids itself (by its content
security policy) to load anything at all.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

from specdec.runtime.report.contents import Report
from specdec.runtime.report.drawing.plots import Plot, draw_plots
from specdec.runtime.report.drawing.tables import Table, report_tables
from specdec.runtime.report.drawing.words import engine_words, size_words
from specdec.runtime.report.inspection import Inspection
from specdec.runtime.report.measuring.acceptance import ALL
from specdec.runtime.report.verdict import best_measured

__all__ = ["render_page"]

_MARKS = {"worth it": "worth", "not worth it": "not", "unsafe": "unsafe", "no draft": "not"}
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:\">"
    '<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head><body><main>'
)


def render_page(inspection: Inspection) -> str:
    """The whole document, UTF-8."""
    folder = files("specdec.runtime.report.drawing")
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    report = inspection.report
    body = [_HEAD.format(title=escape(f"specdec report: {inspection.name}"), style=style)]
    body.append(_header(inspection))
    if report is None:
        body.append(
            '<section class="verdict not"><p class="headline">No report yet.</p>'
            "<p>specdec-inspect --measure short makes one.</p></section>"
        )
    else:
        body += [_verdict(report), _facts(report)]
        figures = "".join(_figure(plot) for plot in draw_plots(report))
        body.append(f'<h2>Plots</h2><div class="plots">{figures}</div>')
        body += [_table(table) for table in report_tables(report)]
        body.append(_method(report))
    body.append("</main></body></html>\n")
    return "\n".join(body)


def _header(inspection: Inspection) -> str:
    source = inspection.source
    lines = [f"target {source.get('target', 'unknown')}: {engine_words(inspection.target)}"]
    if inspection.draft is not None:
        lines.append(f"draft {source.get('draft', 'unknown')}: {engine_words(inspection.draft)}")
    lines.append(
        f"{size_words(inspection.size)}, made {source.get('created', '')} by specdec "
        f"{inspection.specdec_version}"
    )
    lines.append(f"engine here: {', '.join(dict.fromkeys(inspection.engines.values()))}")
    lines += [weights.words for weights in inspection.weights]
    lines += inspection.notes
    paragraphs = "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)
    return f"<header><h1>{escape(inspection.name)}</h1>{paragraphs}</header>"


def _verdict(report: Report) -> str:
    verdict = report.verdict
    items = "".join(f"<li>{escape(line)}</li>" for line in (*verdict.reasons, *verdict.changes))
    return (
        f'<section class="verdict {_MARKS[verdict.decision]}"><p class="headline">'
        f"{escape(verdict.headline)}</p><ul>{items}</ul></section>"
    )


def _facts(report: Report) -> str:
    best = best_measured(report.measured)
    memory = report.costs.memory
    facts = [
        (f"{best.speedup:.2f} x", f"plain speed, greedy, K = {best.num_draft_tokens}"),
        (f"{best.tokens_per_second:.1f}", f"tokens/s, {best.plain_tokens_per_second:.1f} plain"),
    ]
    acceptance = next((p for p in report.predictions if p.category == ALL), None)
    if acceptance is not None:
        facts.append((f"{acceptance.acceptance_rate:.0%}", "of drafted tokens accepted, greedy"))
    pair = report.quality.greedy
    if pair is not None:
        facts.append((f"{pair.equal} of {pair.texts}", "greedy texts equal the target's"))
    facts.append((size_words(memory.by_context[-1].bytes), "weights and whole cache"))
    return (
        '<section class="facts">'
        + "".join(
            f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in facts
        )
        + "</section>"
    )


def _figure(plot: Plot) -> str:
    legend = "".join(
        f'<span><i class="s{series}"></i>{escape(name)}</span>' for series, name in plot.legend
    )
    return (
        f'<figure><h3>{escape(plot.heading)}</h3>{plot.svg}<div class="legend">{legend}</div>'
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    heading = escape(table.heading)
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f'<h2>{heading}</h2><div class="scroll" tabindex="0" role="region" aria-label="{heading}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        f'<p class="soft">{escape(table.note)}</p>'
    )


def _method(report: Report) -> str:
    machine = report.machine
    threads = machine.num_threads or "as many as ONNX Runtime chooses"
    lines = [
        f"Measured {report.created} ({report.level}) with specdec {report.specdec_version}.",
        f"{machine.cpu}, {machine.cores} cores, {machine.system}, Python {machine.python}, "
        f"ONNX Runtime {machine.onnxruntime}, device {machine.device}, threads: {threads}.",
        "Speed-ups are of paired, interleaved runs; docs/performance.md explains every figure.",
    ]
    return "<h2>How it was measured</h2>" + "".join(
        f'<p class="soft">{escape(line)}</p>' for line in lines
    )
