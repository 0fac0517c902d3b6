"""Results as a notebook shows them: one piece of HTML that needs nothing else and stays small."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from diptych.common.errors import DiptychError
from diptych.common.pages import render
from diptych.data.open_picture import open_picture
from diptych.data.thumbnail import thumbnail_uri
from diptych.search.asking.results import Result
from diptych.search.stores.keys import open_key

# So many results are shown, each picture with its longer side at most so many pixels.
MOST, SIDE = 24, 160


@dataclass(frozen=True)
class Tile:
    """One result: its picture as an address, None where it cannot be read, and what stands below."""

    picture: str | None
    text: str
    name: str
    score: float
    confidence: float | None


def results_html(results: Sequence[Result], matches: bool | None) -> str:
    """Results in their order as HTML, at most 24 of them; `matches`: whether they are said to match at all."""
    tiles = [_tile(result) for result in results[:MOST]]
    values = {"tiles": tiles, "left": len(results) - len(tiles), "doubtful": bool(results) and matches is False}
    return str(render("search/results.html", values))


def _tile(result: Result) -> Tile:
    name = "/".join(PurePath(result.path).parts[-2:])
    picture = None
    if result.kind == "picture":
        try:
            picture = thumbnail_uri(open_picture(open_key(result.key), SIDE), SIDE)
        except DiptychError:  # it was moved or deleted since, or was never a file
            picture = None
    return Tile(picture, result.text, name, result.score, result.confidence)
