"""The kinds of charts that a report has: lines, bars, points and a map of cells."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from diptych.explain.draw import HELPS
from diptych.report.axes import Axis, axis, number
from diptych.report.chart import BOTTOM, RIGHT, TOP, Canvas, Key, Numbers, dashed, figure, marker

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Line:
    """A line through (x, y).

    low, high: the ends of a band around it, where it has one; named: whether it is in the legend and in words
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0
    dash: int = 0
    points: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    named: bool = True


def line_chart(
    name: str,
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y: Axis,
    *,
    mark: tuple[float, str] | None = None,
    numbers: Numbers | None = None,
    note: str = "",
    x_low: float | None = None,
) -> "Markup":
    """Lines over a common axis of whole numbers; `mark` is an x that a dotted upright line and a word point out."""
    across = axis(x_label, [x for line in lines for x in line.x], whole=True, low=x_low)
    canvas = Canvas(across, y)
    canvas.frame()
    if mark is not None:
        x, _ = canvas.at(mark[0], y.low)
        canvas.add(f'<line class="mark" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{canvas.height - BOTTOM}"/>')
        side = "end" if across.place(mark[0]) > 0.75 else "middle"
        canvas.add(f'<text class="tick {side}" x="{x:.1f}" y="{TOP - 6}">{escape(mark[1])}</text>')
    for line in lines:
        if len(line.low):
            there = [canvas.at(a, b) for a, b in zip(line.x, line.high, strict=True)]
            back = [canvas.at(a, b) for a, b in zip(line.x, line.low, strict=True)][::-1]
            canvas.add(f'<path class="band c{line.colour}" d="{_path([*there, *back])}Z"/>')
    for line in lines:
        places = [canvas.at(a, b) for a, b in zip(line.x, line.y, strict=True)]
        canvas.add(f'<path class="stroke c{line.colour}" d="{_path(places)}"{dashed(line.dash)}/>')
        if line.points or len(places) == 1:
            for (x, down), a, b in zip(places, line.x, line.y, strict=True):
                canvas.add(marker("circle", x, down, line.colour, 2.6, told=f"{line.name}: {number(b)} at {number(a)}"))
    told = "; ".join(
        f"{line.name} goes from {number(line.y[0])} to {number(line.y[-1])}, lowest {number(min(line.y))}, "
        f"highest {number(max(line.y))}"
        for line in lines
        if line.named
    )
    description = f"Line chart of {y.label} over {x_label}. {told}."
    named = [line for line in lines if line.named]
    keys = [Key(line.name, line.colour, dash=line.dash) for line in named] if len(named) > 1 else []
    return figure(name, title, description, canvas, keys, numbers or _by_x(x_label, named), note)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _by_x(x_label: str, lines: Sequence[Line]) -> Numbers:
    known = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    rows = [[x, *(values.get(x, "–") for values in known)] for x in sorted({x for line in lines for x in line.x})]
    return Numbers([x_label, *(line.name for line in lines)], rows)


@dataclass(frozen=True)
class Bars:
    """A group of bars, one a category; `told` is what each shows when it is pointed at."""

    name: str
    values: Sequence[float]
    colour: int
    hollow: bool = False
    told: Sequence[str] = ()


def bar_chart(
    name: str,
    title: str,
    categories: Sequence[str],
    groups: Sequence[Bars],
    x_label: str,
    y: Axis,
    *,
    edges: Sequence[float] | None = None,
    level: tuple[float, str] | None = None,
    numbers: Numbers | None = None,
    note: str = "",
) -> "Markup":
    """Bars side by side. With `edges` (one more than categories) it is a histogram and the edges are labelled.

    `level` is a y that a dotted line and a word point out.
    """
    canvas = Canvas(Axis(x_label, 0, len(categories), ()), y)
    if edges is None:
        ticks = [(i + 0.5, text) for i, text in enumerate(categories)]
    else:
        every = max(1, math.ceil((len(edges) - 1) / 5))
        ticks = [(float(i), number(edges[i])) for i in range(0, len(edges), every)]
    canvas.frame(x_ticks=ticks)
    room = 0.9 if edges is not None else 0.74
    for i, category in enumerate(categories):
        for g, bars in enumerate(groups):
            left, base = canvas.at(i + (1 - room) / 2 + room * g / len(groups), max(y.low, 0.0))
            right, top = canvas.at(i + (1 - room) / 2 + room * (g + 1) / len(groups), bars.values[i])
            told = bars.told[i] if bars.told else f"{bars.name}, {category}: {number(bars.values[i], 3)}"
            canvas.add(
                f'<rect class="bar-mark c{bars.colour}{" hollow" if bars.hollow else ""}" x="{left + 0.5:.1f}" '
                f'y="{top:.1f}" width="{max(0.5, right - left - 1):.1f}" height="{max(0.0, base - top):.1f}">'
                f"<title>{escape(told)}</title></rect>"
            )
    if level is not None:
        _, down = canvas.at(0, level[0])
        right_end = canvas.width - RIGHT
        canvas.add(f'<line class="mark" x1="{canvas.left}" y1="{down:.1f}" x2="{right_end}" y2="{down:.1f}"/>')
        canvas.add(f'<text class="tick end" x="{right_end}" y="{TOP - 6}">dotted: {escape(level[1])}</text>')
    told = "; ".join(
        f"{bars.name}: " + ", ".join(f"{c} {number(v, 3)}" for c, v in zip(categories, bars.values, strict=True))
        for bars in groups
    )
    shown = numbers or Numbers(
        [x_label, *(bars.name for bars in groups)],
        [[category, *(bars.values[i] for bars in groups)] for i, category in enumerate(categories)],
    )
    description = f"Bar chart of {y.label} by {x_label}. {told}."
    keys = [Key(bars.name, bars.colour, "bar", hollow=bars.hollow) for bars in groups]
    return figure(name, title, description, canvas, keys, shown, note)


@dataclass(frozen=True)
class Cloud:
    """Points of one kind: places (n, 2), a colour, a marker."""

    name: str
    places: np.ndarray
    colour: int
    kind: str = "circle"
    hollow: bool = False
    told: Sequence[str] = field(default=())


def scatter_chart(
    name: str, title: str, clouds: Sequence[Cloud], x_label: str, y_label: str, note: str = ""
) -> "Markup":
    """Points without a scale: only who is near whom can be read."""
    whole = np.concatenate([cloud.places for cloud in clouds])
    low, high = whole.min(0), whole.max(0)
    room = 0.03 * np.maximum(high - low, 1e-9)
    low, high = low - room, high + room
    x = Axis(x_label, float(low[0]), float(high[0]), ())
    y = Axis(y_label, float(low[1]), float(high[1]), ())
    canvas = Canvas(x, y, width=720, height=520, left=26)
    canvas.frame()
    canvas.add(
        f'<rect class="box" x="26" y="{TOP}" width="{720 - 26 - RIGHT}" height="{520 - TOP - BOTTOM}" fill="none"/>'
    )
    for cloud in clouds:
        for i, (a, b) in enumerate(cloud.places.tolist()):
            across, down = canvas.at(a, b)
            told = cloud.told[i] if len(cloud.told) else ""
            canvas.add(marker(cloud.kind, across, down, cloud.colour, 4.2, cloud.hollow, told))
    rows: list[list[str | float]] = [
        [cloud.name, len(cloud.places), *(f"{v:.2f}" for v in (*cloud.places.mean(0), _spread(cloud.places)))]
        for cloud in clouds
    ]
    told = "; ".join(f"{row[0]}: {row[1]} points around ({row[2]}, {row[3]}), spread {row[4]}" for row in rows)
    keys = [Key(cloud.name, cloud.colour, cloud.kind, hollow=cloud.hollow) for cloud in clouds]
    numbers = Numbers(["points", "how many", "middle, across", "middle, up", "mean distance from the middle"], rows)
    return figure(name, title, f"Scatter plot. {told}.", canvas, keys, numbers, note)


def _spread(places: np.ndarray) -> float:
    return float(np.linalg.norm(places - places.mean(0), axis=1).mean())


def map_chart(
    name: str,
    title: str,
    values: np.ndarray,
    columns: Sequence[tuple[float, str]],
    rows: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
    description: str,
    numbers: Numbers,
    note: str = "",
) -> "Markup":
    """Values (rows, columns) from 0 to 1 as strength of one colour, the first row on top; NaN stays empty.

    columns, rows: ticks, as (position counted from 0, label)
    """
    height, width = values.shape
    x = Axis(x_label, 0, width, ())
    y = Axis(y_label, 0, height, ())
    canvas = Canvas(x, y)
    shown = np.zeros((height, width, 4), dtype=np.uint8)
    shown[..., :3] = HELPS
    shown[..., 3] = np.rint(255 * np.nan_to_num(values).clip(0, 1))
    left, top = canvas.at(0, height)
    right, bottom = canvas.at(width, 0)
    canvas.frame(
        x_ticks=[(position + 0.5, text) for position, text in columns],
        y_ticks=[(height - position - 0.5, text) for position, text in rows],
    )
    canvas.add(
        f'<image class="cells" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
        f'preserveAspectRatio="none" href="{_png(shown)}"/>'
    )
    return figure(name, title, description, canvas, (), numbers, note)


def _png(pixels: np.ndarray) -> str:
    """Pixels (height, width, 4) inside an address, exactly."""
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "png")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
