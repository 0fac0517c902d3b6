"""An explanation as a notebook shows it: the words shaded, and small maps over the picture. Nothing else is needed."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.common.pages import colour, render
from diptych.data.open_picture import open_picture
from diptych.data.thumbnail import thumbnail_uri
from diptych.explain.draw import over_picture, shades
from diptych.explain.explanation import Explanation
from diptych.explain.sheet import CAPTIONS

# The width of the picture and of each word's map, and how many of these there are at most.
WIDTH, SMALL, MOST = 320, 128, 16


@dataclass(frozen=True)
class MapTile:
    """A map over the picture as an address, and what it is of."""

    picture: str
    caption: str


@dataclass(frozen=True)
class ShadedWord:
    """A word, the colour behind it, and its value; None where there is nothing to tell of it."""

    word: str
    paper: str
    value: float | None


def explanation_html(explanation: Explanation) -> str:
    """The explanation as one piece of HTML; maps only where the picture can be opened and its regions are placed."""
    strength, whole, looks = explanation.strength(), _whole(explanation), explanation.looks()
    picture = _picture(explanation)
    tiles: list[MapTile] = []
    first: MapTile | None = None
    if picture is not None and whole is not None:
        first = MapTile(_map(picture, explanation, whole[1], WIDTH), CAPTIONS.get(whole[0], whole[0]))
    if picture is not None and looks is not None:
        # A word that looks nowhere in particular stays dark beside one that does.
        top = float(looks[1].max(initial=0.0)) if looks[0] == "together" else None
        pairs = list(zip(explanation.words, looks[1], strict=True))[:MOST]
        tiles = [MapTile(_map(picture, explanation, values, SMALL, top), word) for word, values in pairs]
    values = {
        "explanation": explanation,
        "words": _words(explanation),
        "shading": "" if strength is None else CAPTIONS.get(strength[0], strength[0]),
        "first": first,
        "looks": "" if looks is None else CAPTIONS.get(looks[0], looks[0]),
        "tiles": tiles,
    }
    return str(render("explain/notebook.html", values))


def _whole(explanation: Explanation) -> tuple[str, np.ndarray] | None:
    """The sentence's own map: what the score would miss, where regions were left out; else where it looks."""
    drop = explanation.array("region_drop")
    return explanation.whole() if drop is None else ("region_drop", drop)


def _words(explanation: Explanation) -> list[ShadedWord]:
    strength = explanation.strength()
    if strength is None:
        return [ShadedWord(word, "transparent", None) for word in explanation.words]
    parts = shades(strength[1], 1.0 if strength[0] == "word_gates" else None)
    return [
        ShadedWord(word, f"rgba({','.join(map(str, colour('warm' if part >= 0 else 'cold')))},{abs(part):.2f})", value)
        for word, part, value in zip(explanation.words, parts.tolist(), strength[1].tolist(), strict=True)
    ]


def _picture(explanation: Explanation) -> Image.Image | None:
    if explanation.picture is None or explanation.boxes is None or explanation.size is None:
        return None
    try:
        return open_picture(explanation.picture, WIDTH)
    except DiptychError:  # its file was moved or deleted since
        return None


def _map(
    picture: Image.Image, explanation: Explanation, values: np.ndarray, width: int, top: float | None = None
) -> str:
    return thumbnail_uri(over_picture(picture, explanation, values, top, width), 2 * width)
