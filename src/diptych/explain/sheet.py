"""One picture that tells it all: the sentence, where it looks, each word's map, and slots by iteration."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from diptych.explain.draw import FAINT, INK, PAPER, enlarged, font, over_picture, shaded_words, shades
from diptych.explain.explanation import Explanation

MARGIN, GAP = 24, 14
# What an array shows, for people.
CAPTIONS = {
    "word_to_region": "where the words look",
    "region_to_word": "which regions look at the words",
    "together": "which regions the words need",
    "region_share": "which regions won the pooling",
    "slot_to_region": "what the slots hold",
    "region_drop": "regions that the score would miss",
    "region_gates": "gates of the regions",
    "region_fit": "how well words answer the regions",
    "word_gates": "words shaded by their gates",
    "word_fit": "words shaded by how well regions answer them",
    "word_drop": "words shaded by what the score would miss (blue: it would gain)",
    "word_share": "words shaded by their share of the pooling",
}
Tile = tuple[Image.Image, str]


def explanation_sheet(explanation: Explanation, picture: Image.Image, width: int = 960) -> Image.Image:
    """The explanation of one pair as one picture.

    >>> explanation_sheet(told, Image.open("dog.png"), width=480).width
    480
    """
    inner = width - 2 * MARGIN
    blocks: list[Image.Image] = [heading(explanation, inner)]
    third = (inner - 2 * GAP) // 3
    tiles: list[Tile] = [(enlarged(picture, third), "the picture")]
    whole = explanation.whole()
    if whole is not None:
        tiles.append((over_picture(picture, explanation, whole[1], width=third), CAPTIONS[whole[0]]))
    arrays = explanation.arrays()
    for name in ("region_drop", "region_share", "region_gates", "region_fit"):
        if name in arrays and (whole is None or name != whole[0]) and len(tiles) < 3:
            tiles.append((over_picture(picture, explanation, arrays[name], width=third), CAPTIONS[name]))
    blocks.append(tile_rows(tiles, 3, inner, third))
    looks = explanation.looks()
    if looks is not None:
        blocks.append(_line(f"Each word: {CAPTIONS[looks[0]]}", inner))
        small = (inner - 5 * GAP) // 6
        # A word that looks nowhere in particular stays dark beside one that does.
        top = float(looks[1].max(initial=0.0)) if looks[0] == "together" else None
        words = [
            (over_picture(picture, explanation, values, top, small), word)
            for word, values in zip(explanation.words, looks[1], strict=True)
        ]
        blocks.append(tile_rows(words, 6, inner, small, size=15, ink=INK))
    if "slot_to_region" in arrays:
        blocks += _slots(explanation, picture, arrays["slot_to_region"], inner)
    return stacked(blocks, width)


def heading(explanation: Explanation, width: int, top: float | None = None, size: int = 19) -> Image.Image:
    """The sentence with shaded words, the score, and what the shading means."""
    strength = explanation.strength()
    if top is None and strength is not None and strength[0] == "word_gates":
        top = 1.0  # a gate means something in itself: 0 is shut, 1 is open
    values = np.zeros(len(explanation.words)) if strength is None else shades(strength[1], top)
    words = shaded_words(explanation.words, values, width, size)
    told = f"{explanation.title}   ·   score {explanation.score:.3f}"
    if strength is not None:
        told += f"   ·   {CAPTIONS[strength[0]]}"
        if strength[0] == "word_gates":
            told += f", {float(strength[1].mean()):.2f} on average"
    lines = wrapped(told, width, 14)
    image = Image.new("RGB", (width, words.height + 6 + 20 * len(lines)), PAPER)
    image.paste(words, (0, 0))
    brush = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        brush.text((0, words.height + 6 + 20 * number), line, fill=FAINT, font=font(14))
    return image


def _slots(explanation: Explanation, picture: Image.Image, slots: np.ndarray, width: int) -> list[Image.Image]:
    """A row of maps for each iteration, a column for each slot; the nearest sentences under the last row."""
    iterations, count, _ = slots.shape
    blocks = [_line("Slots of the picture, one row for each iteration", width)]
    wide = min(180, (width - (count - 1) * GAP) // count)
    for number in range(iterations):
        tiles = [
            (over_picture(picture, explanation, slots[number, k], width=wide), f"slot {k + 1}, iteration {number + 1}")
            for k in range(count)
        ]
        blocks.append(tile_rows(tiles, count, width, wide))
    for k, sentences in enumerate(explanation.nearest):
        text = "; ".join(f"{sentence} ({cosine:.2f})" for sentence, cosine in sentences)
        blocks.append(_paragraph(f"slot {k + 1} is nearest to: {text}", width))
    return blocks


def tile_rows(
    tiles: Sequence[Tile], columns: int, width: int, tile: int, size: int = 13, ink: tuple[int, int, int] = FAINT
) -> Image.Image:
    """Pictures in rows, each with its caption below, which is wrapped to the tile."""
    captions = [wrapped(caption, tile, size) for _, caption in tiles]
    rows = [range(start, min(start + columns, len(tiles))) for start in range(0, len(tiles), columns)]
    line = round(size * 1.3)
    heights = [max(tiles[i][0].height for i in row) + 6 + line * max(len(captions[i]) for i in row) for row in rows]
    image = Image.new("RGB", (width, sum(heights) + GAP * (len(rows) - 1)), PAPER)
    brush = ImageDraw.Draw(image)
    y = 0
    for row, height in zip(rows, heights, strict=True):
        tall = max(tiles[i][0].height for i in row)
        for column, i in enumerate(row):
            x = column * (tile + GAP)
            image.paste(tiles[i][0], (x, y))
            for number, text in enumerate(captions[i]):
                brush.text((x, y + tall + 6 + number * line), text, fill=ink, font=font(size))
        y += height + GAP
    return image


def stacked(blocks: Sequence[Image.Image], width: int) -> Image.Image:
    """Blocks under each other on paper, with a margin."""
    height = 2 * MARGIN + sum(b.height for b in blocks) + GAP * (len(blocks) - 1)
    image = Image.new("RGB", (width, height), PAPER)
    y = MARGIN
    for block in blocks:
        image.paste(block, (MARGIN, y))
        y += block.height + GAP
    return image


def wrapped(text: str, width: int, size: int) -> list[str]:
    """Text broken into lines that fit."""
    face, lines = font(size), [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".lstrip() if lines[-1] else word
        if not lines[-1] or face.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _line(text: str, width: int) -> Image.Image:
    image = Image.new("RGB", (width, 30), PAPER)
    ImageDraw.Draw(image).text((0, 8), text, fill=INK, font=font(16))
    return image


def _paragraph(text: str, width: int) -> Image.Image:
    lines = wrapped(text, width, 14)
    image = Image.new("RGB", (width, 20 * len(lines)), PAPER)
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((0, 20 * number), line, fill=INK, font=font(14))
    return image
