"""Charts as inline SVG: a title, labelled axes, words for those who do not see it, and its numbers in a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from diptych.common.pages import render
from diptych.report.axes import Axis, number

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT = 440, 276
LEFT, RIGHT, TOP, BOTTOM = 76, 22, 20, 46
COLOURS = 7
DASHES = ("", "6 4", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Key:
    """A line of the legend: its name, its colour's number, and how it is drawn."""

    name: str
    colour: int
    kind: str = "line"  # line, bar, circle, triangle
    dash: int = 0
    hollow: bool = False


@dataclass(frozen=True)
class Numbers:
    """The table under a chart."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]


class Canvas:
    """A plot's frame: marks are put in by value and come out as SVG."""

    def __init__(self, x: Axis, y: Axis, width: int = WIDTH, height: int = HEIGHT, left: int = LEFT) -> None:
        self.x, self.y, self.width, self.height, self.left = x, y, width, height, left
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where values lie on the canvas."""
        across = self.left + self.x.place(x) * (self.width - self.left - RIGHT)
        down = self.height - BOTTOM - self.y.place(y) * (self.height - TOP - BOTTOM)
        return across, down

    def add(self, part: str) -> None:
        """One more mark."""
        self.parts.append(part)

    def frame(
        self, x_ticks: Sequence[tuple[float, str]] | None = None, y_ticks: Sequence[tuple[float, str]] | None = None
    ) -> None:
        """Grid lines, tick labels and both axes' names; ticks are the axes' own unless they are given."""
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        for value, text in y_ticks or [(t, number(t)) for t in self.y.ticks]:
            _, down = self.at(self.x.low, value)
            self.add(f'<line class="rule" x1="{self.left}" y1="{down:.1f}" x2="{right}" y2="{down:.1f}"/>')
            self.add(f'<text class="tick end" x="{self.left - 6}" y="{down + 4:.1f}">{escape(text)}</text>')
        for value, text in x_ticks or [(t, number(t)) for t in self.x.ticks]:
            across, _ = self.at(value, self.y.low)
            self.add(f'<text class="tick middle" x="{across:.1f}" y="{bottom + 16}">{escape(text)}</text>')
        self.add(f'<line class="base" x1="{self.left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
        middle = (self.left + right) / 2
        self.add(f'<text class="name middle" x="{middle:.1f}" y="{self.height - 8}">{escape(self.x.label)}</text>')
        high = (TOP + bottom) / 2
        self.add(
            f'<text class="name middle" transform="translate(14 {high:.1f}) rotate(-90)">{escape(self.y.label)}</text>'
        )


def figure(
    name: str,
    title: str,
    description: str,
    canvas: Canvas,
    keys: Sequence[Key] = (),
    numbers: Numbers | None = None,
    note: str = "",
) -> "Markup":
    """The whole figure; `name` is unique on the page."""
    values = {
        "name": name,
        "title": title,
        "description": description,
        "width": canvas.width,
        "height": canvas.height,
        "marks": "".join(canvas.parts),
        "keys": [(key, _swatch(key)) for key in keys],
        "note": note,
        "columns": numbers.columns if numbers else (),
        "rows": [[_cell(cell) for cell in row] for row in numbers.rows] if numbers else [],
    }
    return render("report/chart.html", values)


def _swatch(key: Key) -> str:
    hollow = " hollow" if key.hollow else ""
    colour = f"c{key.colour % COLOURS}"
    if key.kind == "bar":
        return f'<rect class="bar-mark {colour}{hollow}" x="5" y="2" width="12" height="10"/>'
    if key.kind == "line":
        return f'<line class="stroke {colour}" x1="0" y1="7" x2="22" y2="7"{dashed(key.dash)}/>'
    return marker(key.kind, 11, 7, key.colour, hollow=key.hollow)


def dashed(dash: int) -> str:
    """The attribute of a dash's number."""
    return f' stroke-dasharray="{DASHES[dash]}"' if DASHES[dash % len(DASHES)] else ""


def marker(kind: str, x: float, y: float, colour: int, size: float = 4.0, hollow: bool = False, told: str = "") -> str:
    """A point: `circle` or `triangle`, filled or hollow; `told` is shown when it is pointed at."""
    style = f'class="point c{colour % COLOURS}{" hollow" if hollow else ""}"'
    title = f"<title>{escape(told)}</title>" if told else ""
    if kind == "triangle":
        across, up, down = size * 1.15, size * 1.25, size * 0.75
        path = f"M{x:.1f} {y - up:.1f}L{x + across:.1f} {y + down:.1f}L{x - across:.1f} {y + down:.1f}Z"
        return f'<path {style} d="{path}">{title}</path>' if title else f'<path {style} d="{path}"/>'
    head = f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"'
    return f"{head}>{title}</circle>" if title else f"{head}/>"


def _cell(cell: str | float) -> str:
    return cell if isinstance(cell, str) else number(cell)
