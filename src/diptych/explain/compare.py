"""Pairs that fit beside the same pictures and sentences swapped, as in CAMP's figures 5 to 7."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.open_picture import Picture
from diptych.explain.draw import FAINT, INK, PAPER, font, over_picture, shaded_words, shades
from diptych.explain.explain import explain
from diptych.explain.explanation import Explanation
from diptych.explain.sheet import CAPTIONS, GAP, MARGIN, wrapped
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class SwappedPairs:
    """Explanations of every picture with every sentence; the ones that fit are on the diagonal: pairs[i][i]."""

    pairs: tuple[tuple[Explanation, ...], ...]

    def scores(self) -> np.ndarray:
        """(pictures, sentences)."""
        return np.array([[pair.score for pair in row] for row in self.pairs])

    def gates(self) -> np.ndarray | None:
        """Mean gate over words and regions of each pair, (pictures, sentences); None without gates."""
        gates = [[_gate(pair) for pair in row] for row in self.pairs]
        return None if any(g is None for row in gates for g in row) else np.array(gates, dtype=np.float64)

    def to_json(self) -> dict[str, Any]:
        """All pairs, for a JSON file."""
        gates = self.gates()
        return {
            "scores": self.scores().tolist(),
            "gates": None if gates is None else gates.tolist(),
            "pairs": [[pair.to_json() for pair in row] for row in self.pairs],
        }


def compare(
    matcher: Matcher, images: Sequence[Picture | Regions], sentences: Sequence[str], *, left_out: bool = True
) -> SwappedPairs:
    """Every picture with every sentence; sentence i is picture i's own."""
    if len(images) != len(sentences) or len(images) < 2:
        raise DiptychError(
            f"compare: {len(images)} pictures and {len(sentences)} sentences; expected as many of each, two or more"
        )
    return SwappedPairs(
        tuple(tuple(explain(matcher, image, text, left_out=left_out) for text in sentences) for image in images)
    )


def comparison_sheet(swapped: SwappedPairs, pictures: Sequence[Image.Image], tile: int = 380) -> Image.Image:
    """One row a picture, one column a sentence. Shades have one scale, so that pairs can be compared."""
    pairs = [pair for row in swapped.pairs for pair in row]
    strengths = [strength for pair in pairs if (strength := pair.strength()) is not None]
    strongest = max((float(np.abs(values).max(initial=0.0)) for _, values in strengths), default=0.0)
    if strengths and strengths[0][0] == "word_gates":
        strongest = 1.0  # a gate means something in itself: 0 is shut, 1 is open
    rows = [
        [_panel(pair, picture, tile, i == j, strongest) for j, pair in enumerate(row)]
        for i, (row, picture) in enumerate(zip(swapped.pairs, pictures, strict=True))
    ]
    heights = [max(panel.height for panel in row) for row in rows]
    columns = len(rows[0])
    note = _note(pairs[0])
    width = 2 * MARGIN + columns * tile + (columns - 1) * 2 * GAP
    image = Image.new("RGB", (width, 2 * MARGIN + 26 + sum(heights) + (len(rows) - 1) * 2 * GAP), PAPER)
    ImageDraw.Draw(image).text((MARGIN, MARGIN - 6), note, fill=FAINT, font=font(14))
    y = MARGIN + 26
    for row, height in zip(rows, heights, strict=True):
        for column, panel in enumerate(row):
            image.paste(panel, (MARGIN + column * (tile + 2 * GAP), y))
        y += height + 2 * GAP
    return image


def _panel(pair: Explanation, picture: Image.Image, width: int, fits: bool, strongest: float) -> Image.Image:
    strength, whole = pair.strength(), pair.whole()
    values = np.zeros(len(pair.words)) if strength is None else shades(strength[1], strongest)
    seen = picture if whole is None else over_picture(picture, pair, whole[1], width=width)
    words = shaded_words(pair.words, values, width, 16)
    gate = _gate(pair)
    told = f"{'fits' if fits else 'swapped'}   ·   score {pair.score:.3f}"
    told += "" if gate is None else f"   ·   gates {gate:.3f}"
    panel = Image.new("RGB", (width, seen.height + words.height + 36), PAPER)
    brush = ImageDraw.Draw(panel)
    brush.text((0, 2), told, fill=INK if fits else FAINT, font=font(16))
    panel.paste(seen, (0, 26))
    panel.paste(words, (0, 26 + seen.height + 8))
    return panel


def _note(pair: Explanation) -> str:
    parts = [CAPTIONS[shown[0]] for shown in (pair.whole(), pair.strength()) if shown is not None]
    return wrapped("; ".join(parts), 4000, 14)[0]


def _gate(pair: Explanation) -> float | None:
    words, regions = pair.array("word_gates"), pair.array("region_gates")
    if words is None or regions is None:
        return None
    return float((words.mean() + regions.mean()) / 2)
