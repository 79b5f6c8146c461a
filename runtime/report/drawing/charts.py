"""Small SVG charts without a library: axes, lines, points, bars.

Colours and type come from the page's style sheet by class (`s0` .. `s3` are the series), so one
drawing serves light and dark. Coordinates inside are of a fixed view box; the page scales it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

__all__ = ["Chart", "nice_ticks", "stacked_bars"]

_WIDTH, _HEIGHT = 400, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 14, 14, 42


@dataclass
class Chart:
    """One chart with linear axes; add what it shows, then `render`.

    Args:
        title: read out to those who cannot see it.
        x_label, y_label: axis names with units.
        x_ticks, y_ticks: (position, text); the first and last of each span the axis.
    """

    title: str
    x_label: str
    y_label: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    _shapes: list[str] = field(default_factory=list)

    def line(
        self, points: Sequence[tuple[float, float]], series: int, dashed: bool = False
    ) -> None:
        """Draw a line through data points, with a dot at each unless it is dashed."""
        places = [(self._x(x), self._y(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        extra = ' stroke-dasharray="5 4"' if dashed else ""
        self._shapes.append(f'<polyline class="line s{series}" points="{path}"{extra}/>')
        if not dashed:
            self._shapes += [
                f'<circle class="dot s{series}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'
                for x, y in places
            ]

    def level(self, y: float, text: str) -> None:
        """Draw a horizontal reference line with a name at its right end."""
        height = self._y(y)
        self._shapes.append(
            f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" '
            f'y2="{height:.1f}"/><text class="note" x="{_WIDTH - _RIGHT - 2}" '
            f'y="{height - 5:.1f}" text-anchor="end">{escape(text)}</text>'
        )

    def measured(self, x: float, y: float, low: float, high: float, series: int) -> None:
        """Draw a measured point with its interval."""
        across, bottom, top = self._x(x), self._y(low), self._y(high)
        self._shapes.append(
            f'<g class="measured s{series}"><line x1="{across:.1f}" x2="{across:.1f}" '
            f'y1="{bottom:.1f}" y2="{top:.1f}"/><circle cx="{across:.1f}" '
            f'cy="{self._y(y):.1f}" r="5.5"/></g>'
        )

    def area(self, points: Sequence[tuple[float, float]], base: float, series: int) -> None:
        """Fill between a line and a constant."""
        places = [*points, (points[-1][0], base), (points[0][0], base)]
        path = " ".join(f"{self._x(x):.1f},{self._y(y):.1f}" for x, y in places)
        self._shapes.append(f'<polygon class="area s{series}" points="{path}"/>')

    def render(self) -> str:
        """The chart as an `<svg>` element."""
        return _svg(self.title, _HEIGHT, "".join([*self._axes(), *self._shapes]))

    def _axes(self) -> list[str]:
        floor, end = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        shapes = []
        for value, text in self.y_ticks:
            y = self._y(value)
            shapes.append(
                f'<line class="grid" x1="{_LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">'
                f"{escape(text)}</text>"
            )
        for value, text in self.x_ticks:
            shapes.append(
                f'<text class="tick" x="{self._x(value):.1f}" y="{floor + 17}" '
                f'text-anchor="middle">{escape(text)}</text>'
            )
        middle = (floor + _TOP) / 2
        shapes.append(
            f'<text class="axis" x="{(_LEFT + end) / 2:.0f}" y="{_HEIGHT - 6}" '
            f'text-anchor="middle">{escape(self.x_label)}</text>'
            f'<text class="axis" x="12" y="{middle:.0f}" text-anchor="middle" '
            f'transform="rotate(-90 12 {middle:.0f})">{escape(self.y_label)}</text>'
        )
        return shapes

    def _x(self, value: float) -> float:
        low, high = self.x_ticks[0][0], self.x_ticks[-1][0]
        share = (value - low) / (high - low) if high > low else 0.5
        return _LEFT + 6 + share * (_WIDTH - _RIGHT - _LEFT - 12)

    def _y(self, value: float) -> float:
        low, high = self.y_ticks[0][0], self.y_ticks[-1][0]
        share = (min(max(value, low), high) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def stacked_bars(title: str, bars: Sequence[tuple[str, Sequence[tuple[float, int]]]]) -> str:
    """Horizontal bars of (size, series) parts, a name above each, on one scale."""
    longest = max(sum(size for size, _ in parts) for _, parts in bars)
    shapes, y = [], 8
    for name, parts in bars:
        shapes.append(f'<text class="name" x="0" y="{y + 12}">{escape(name)}</text>')
        x = 0.0
        for size, series in parts:
            width = size / longest * _WIDTH
            shapes.append(
                f'<rect class="bar s{series}" x="{x:.1f}" y="{y + 20}" width="{width:.1f}" '
                'height="30"/>'
            )
            x += width
        y += 68
    return _svg(title, y, "".join(shapes))


def nice_ticks(highest: float, lowest: float = 0.0, count: int = 5) -> list[float]:
    """Round numbers from at most `lowest` to at least `highest`, about `count` steps."""
    span = max(highest - lowest, 1e-12)
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]


def _svg(title: str, height: int, body: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )
