"""The page: complete, harmless, and good to look at in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specdec.engines import read_package
from specdec.runtime.report import Report
from specdec.runtime.report.drawing.charts import nice_ticks
from specdec.runtime.report.drawing.page import render_page
from specdec.runtime.report.drawing.plots import draw_plots
from specdec.runtime.report.inspection import Inspection, inspect_package


@pytest.fixture(scope="module")
def inspection(tiny_package: Path) -> Inspection:
    return inspect_package(read_package(tiny_package))


def test_every_plot_is_there(inspection: Inspection) -> None:
    page = render_page(inspection)
    for heading in ("Speed-up by K", "Verify curve", "Acceptance", "Where the time goes", "Memory"):
        assert f"<h3>{heading}</h3>" in page
    assert page.count("<svg") == 5
    assert inspection.report is not None
    assert inspection.report.verdict.headline.split(":")[0] in page
    assert 'class="measured s0"' in page


def test_the_page_loads_nothing(inspection: Inspection) -> None:
    page = render_page(inspection)
    assert "default-src 'none'" in page
    assert not re.search(r"<script|<img|<iframe|<object|@import|url\(|https?://", page)
    assert re.findall(r'(?:href|src)="([^"]*)"', page) == ["data:,"]


def test_what_a_package_says_is_text(inspection: Inspection) -> None:
    evil = '<script>alert(1)</script>"&'
    assert inspection.report is not None
    report = replace(
        inspection.report,
        verdict=replace(inspection.report.verdict, headline=evil, reasons=(evil,)),
        machine=replace(inspection.report.machine, cpu=evil),
    )
    hostile = replace(
        inspection,
        name=evil,
        notes=(evil,),
        source={"target": evil, "draft": evil, "created": evil},
        report=report,
    )
    page = render_page(hostile)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 8


def test_a_package_without_report_says_so(inspection: Inspection) -> None:
    assert "No report yet" in render_page(replace(inspection, report=None))


def test_a_report_without_draft_draws_what_it_has(tiny_report: Report) -> None:
    contexts = tuple(replace(c, draft_seconds=None) for c in tiny_report.costs.contexts)
    alone = replace(
        tiny_report,
        costs=replace(tiny_report.costs, contexts=contexts),
        predictions=(),
        split=None,
        quality=replace(tiny_report.quality, acceptance=()),
    )
    assert [plot.heading for plot in draw_plots(alone)] == ["Verify curve", "Memory"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 97.0, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]),
        (0.7, 2.2, [0.5, 1.0, 1.5, 2.0, 2.5]),
        (0.0, 0.0, [0.0]),
    ],
)
def test_ticks_are_round_and_span_the_values(low: float, high: float, ticks: list[float]) -> None:
    found = nice_ticks(high, low)
    if high > low:
        assert found == pytest.approx(ticks)
    assert found[0] <= low
    assert found[-1] >= high


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_in_a_browser(
    browser: Any, inspection: Inspection, tmp_path: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(inspection), encoding="utf-8")
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    assert complaints == []
    assert requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    outside = page.evaluate(OUTSIDE)
    assert outside == [], "nothing but scrolling tables may be wider than the page"
    assert page.evaluate(CONTRAST) >= 4.5
    for figure in page.query_selector_all("figure svg"):
        box = figure.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 60
    assert page.evaluate(LABEL_PIXELS) >= 10.0, "labels stay legible on a phone"
    context.close()


def test_a_phone_shows_the_speed_up_and_that_tables_scroll(
    browser: Any, inspection: Inspection, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(inspection), encoding="utf-8")
    context = browser.new_context(viewport={"width": 400, "height": 900}, offline=True)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.evaluate(SPEED_UP_RIGHT) <= 400 - 16
    assert "local" in page.evaluate(SHADOWS), "covers move with the table, shadows stay"
    context.close()


SPEED_UP_RIGHT = """() => [...document.querySelectorAll('th')]
  .find(e => e.textContent === 'speed-up').getBoundingClientRect().right"""

SHADOWS = """() => getComputedStyle(document.querySelector('.scroll')).backgroundAttachment"""

OUTSIDE = """() => [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""

LABEL_PIXELS = """() => Math.min(...[...document.querySelectorAll('svg text')].map(e =>
  parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width
    / e.ownerSVGElement.viewBox.baseVal.width))"""

# WCAG contrast of the softest text colour on the page's background.
CONTRAST = """() => {
  const light = text => {
    const [r, g, b] = text.match(/\\d+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const inks = [...document.querySelectorAll('.soft, .headline, td, figcaption')]
    .map(e => light(getComputedStyle(e).color));
  return Math.min(...inks.map(ink =>
    (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)));
}"""
