"""An explanation as pages show it: plain data for the script; regions, words and a table for the templates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.explain.explanation import Explanation
from diptych.explain.sheet import CAPTIONS

# Arrays of the words that the table shows.
_COLUMNS = ("word_gates", "word_fit", "word_weights", "word_share", "word_drop")
# Arrays that say where the words look: people choose between those that there are.
_MODES = ("word_to_region", "region_to_word", "together")
# What is shown where nothing is chosen, for people who do not know the names of arrays.
_PLAINLY = {
    "region_drop": "bright is what the score would miss in the picture",
    "word_drop": "it would miss the orange words, and rise without the blue ones",
}
# Arrays that the script tells of in words.
_TOLD = ("word_gates", "region_gates", "word_drop", "region_drop")


@dataclass(frozen=True)
class Rect:
    """A region on the picture; whole: it covers nearly all of it."""

    region: int
    name: str
    x: float
    y: float
    width: float
    height: float
    whole: bool


@dataclass(frozen=True)
class Cell:
    """A value, and its size against the largest of its column."""

    value: float
    part: float


@dataclass(frozen=True)
class WordRow:
    """A word and its values."""

    word: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class WordTable:
    """Values of the words, a column for each array."""

    names: tuple[str, ...]
    rows: tuple[WordRow, ...]


@dataclass(frozen=True)
class WhyView:
    """An explanation for the templates.

    rest: what is shown where nothing is pointed at; modes: names and captions of the arrays that say where words look
    looks: the name of the one that is shown at first; slots: iterations and slots, both 0 where there are none
    data: what the script draws from, as far as every page has a use for it
    """

    model: str
    score: float
    words: tuple[str, ...]
    regions: int
    rects: tuple[Rect, ...]
    grid: bool
    width: int
    height: int
    rest: str
    table: WordTable | None
    modes: tuple[tuple[str, str], ...]
    looks: str | None
    slots: tuple[int, int]
    data: dict[str, Any]


def told_of(explanation: Explanation) -> dict[str, Any]:
    """All arrays, and which of them to show for what, as plain data."""
    told = explanation.to_json()
    for name in ("looks", "answers", "whole", "strength"):
        shown = getattr(explanation, name)()
        told[name] = None if shown is None else {"name": shown[0], "values": plain(shown[1])}
    return told


def plain(array: np.ndarray) -> list[Any]:
    """Nested lists with as many digits as float32 has."""
    return np.round(array.astype(np.float64), 7).tolist()


def view_of(told: Mapping[str, Any]) -> WhyView:
    """What `told_of` tells, for the templates."""
    arrays = told["arrays"]
    drawn = {name: told[name] for name in ("words", "grid", "looks", "answers", "whole", "strength")}
    captions = [
        _PLAINLY.get(told[name]["name"]) or CAPTIONS.get(told[name]["name"], "")
        for name in ("whole", "strength")
        if told[name]
    ]
    width, height = told["size"] or (1, 1)
    slots = arrays["slot_to_region"]["shape"] if "slot_to_region" in arrays else (0, 0)
    return WhyView(
        model=told["title"],
        score=told["score"],
        words=tuple(told["words"]),
        regions=told["regions"],
        rects=_rects(told["boxes"], width, height) if told["boxes"] and told["size"] else (),
        grid=bool(told["grid"]),
        width=width,
        height=height,
        rest=" ".join(_sentence(caption) for caption in captions if caption),
        table=_table(told["words"], arrays),
        modes=tuple((name, CAPTIONS[name]) for name in _MODES if name in arrays),
        looks=told["looks"]["name"] if told["looks"] else None,
        slots=(slots[0], slots[1]),
        data=drawn | {"arrays": {name: arrays[name] for name in _TOLD if name in arrays}},
    )


def _rects(boxes: list[list[float]], width: float, height: float) -> tuple[Rect, ...]:
    """The regions, large ones first, so that small ones lie on top and each can be pointed at."""
    rects = []
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        wide, high = max(0.0, x1 - x0), max(0.0, y1 - y0)
        whole = wide * high > 0.9 * width * height
        name = "the whole picture" if whole else _place((x0 + x1) / 2 / width, (y0 + y1) / 2 / height)
        rects.append(Rect(i, name, round(x0, 1), round(y0, 1), round(wide, 1), round(high, 1), whole))
    return tuple(sorted(rects, key=lambda rect: -rect.width * rect.height))


def _place(across: float, down: float) -> str:
    """Where in a picture something is, in words; both from 0 to 1."""
    column = "left" if across < 1 / 3 else "right" if across > 2 / 3 else ""
    row = "top" if down < 1 / 3 else "bottom" if down > 2 / 3 else ""
    return f"the {' '.join(filter(None, (row, column))) or 'middle'}"


def _table(words: list[str], arrays: Mapping[str, Any]) -> WordTable | None:
    names = [name for name in _COLUMNS if name in arrays]
    if not names or not words:
        return None
    columns = [arrays[name]["values"] for name in names]
    tops = [max(map(abs, column), default=0.0) or 1.0 for column in columns]
    rows = tuple(
        WordRow(word, tuple(Cell(column[i], abs(column[i]) / top) for column, top in zip(columns, tops, strict=True)))
        for i, word in enumerate(words)
    )
    return WordTable(tuple(name.removeprefix("word_") for name in names), rows)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
