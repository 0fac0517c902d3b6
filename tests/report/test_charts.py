"""Charts are parsed as XML and measured: what is drawn is what was given."""

import base64
import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from diptych.report.axes import Axis, axis
from diptych.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Numbers
from diptych.report.charts import Bars, Cloud, Line, bar_chart, line_chart, map_chart, scatter_chart


def parse(figure: str) -> ET.Element:
    return ET.fromstring(figure)


def cells(root: ET.Element) -> list[list[str]]:
    return [[cell.text or "" for cell in row] for row in root.iter("tr")]


def by_class(root: ET.Element, tag: str, name: str) -> list[ET.Element]:
    return [e for e in root.iter(tag) if name in e.get("class", "").split()]


def up(root_height: float, y: float) -> float:
    """How far up the plot a place is, from 0 to 1."""
    return (root_height - BOTTOM - y) / (root_height - TOP - BOTTOM)


def test_a_line_goes_through_its_points() -> None:
    root = parse(line_chart("a", "A", [Line("one", [0, 5, 10], [0, 50, 100])], "step", Axis("y", 0, 100, (0, 100))))
    path = by_class(root, "path", "stroke")[0].get("d", "")
    places = [tuple(map(float, place.split())) for place in path[1:].split("L")]
    across = WIDTH - LEFT - RIGHT
    assert [x for x, _ in places] == pytest.approx([LEFT, LEFT + across / 2, LEFT + across])
    assert [up(HEIGHT, y) for _, y in places] == pytest.approx([0, 0.5, 1], abs=0.01)
    assert cells(root) == [["step", "one"], ["0", "0"], ["5", "50"], ["10", "100"]]


def test_bars_are_as_high_as_their_values() -> None:
    groups = [Bars("one", [10, 0], 0), Bars("two", [40, 25], 1, hollow=True)]
    root = parse(bar_chart("b", "B", ["x", "y"], groups, "kind", Axis("share, %", 0, 50, (0, 50))))
    bars = [r for r in by_class(root, "rect", "bar-mark") if r.find("title") is not None]
    heights = [float(r.get("height", "")) / (HEIGHT - TOP - BOTTOM) * 50 for r in bars]
    assert heights == pytest.approx([10, 40, 0, 25], abs=0.2)
    assert [r.find("title").text for r in bars] == ["one, x: 10", "two, x: 40", "one, y: 0", "two, y: 25"]  # type: ignore[union-attr]


def test_every_point_is_drawn_with_its_shape() -> None:
    rng = np.random.default_rng(0)
    clouds = [Cloud("pictures", rng.normal(size=(5, 2)), 0), Cloud("sentences", rng.normal(size=(7, 2)), 1, "triangle")]
    root = parse(scatter_chart("c", "C", clouds, "x", "y"))
    assert (len(by_class(root, "circle", "point")), len(by_class(root, "path", "point"))) == (
        5 + 1,
        7 + 1,
    )  # and legend
    assert cells(root)[1][:2] == ["pictures", "5"]
    assert float(cells(root)[2][2]) == pytest.approx(clouds[1].places[:, 0].mean(), abs=0.01)


def test_a_map_s_cells_are_its_values() -> None:
    values = np.array([[1.0, np.nan], [0.5, 0.0]])
    root = parse(map_chart("d", "D", values, [(0, "1")], [(0, "a")], "x", "y", "told", Numbers(["n"], [[1]])))
    address = next(root.iter("image")).get("href", "")
    with Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))) as image:
        np.testing.assert_array_equal(np.asarray(image)[..., 3], [[255, 0], [128, 0]])


def test_words_for_those_who_do_not_see_it() -> None:
    line = Line("<loss>", [1, 2], [3.5, 1.25])
    root = parse(line_chart("e", "Loss & more", [line], "step", axis("loss", [3.5, 1.25])))
    svg = next(root.iter("svg"))
    assert svg.get("role") == "img"
    named = {e.get("id"): e.text for e in svg if e.tag in ("title", "desc")}
    assert list(named) == svg.get("aria-labelledby", "").split()
    assert named["e-t"] == "Loss & more"
    assert "<loss> goes from 3.5 to 1.25" in (named["e-d"] or "")
    texts = {e.text for e in svg.iter("text")}
    assert {"step", "loss"} <= texts
