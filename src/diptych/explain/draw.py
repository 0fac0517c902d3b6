"""Maps over a picture: cells as a smooth heat map, boxes as outlined rectangles; words on shaded paper."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from diptych.common.errors import DiptychError
from diptych.common.pages import colour
from diptych.explain.explanation import Explanation

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER: Colour = (255, 255, 255)
INK: Colour = (33, 37, 46)
FAINT: Colour = (118, 124, 138)
NIGHT, HELPS, HURTS = colour("night"), colour("warm"), colour("cold")
RAMP = np.array([colour(f"ramp-{i}") for i in range(6)])


def ramp(values: np.ndarray) -> np.ndarray:
    """Colours of values from 0 to 1: (...) -> (..., 3), 0 to 255."""
    place = np.clip(values, 0, 1) * (len(RAMP) - 1)
    low = np.minimum(place.astype(int), len(RAMP) - 2)
    part = (place - low)[..., None]
    return RAMP[low] * (1 - part) + RAMP[low + 1] * part


def scaled(values: np.ndarray, top: float | None = None) -> np.ndarray:
    """Values against the largest (or `top`), from 0 to 1; below 0 is 0, and nothing at all is 0 everywhere."""
    positive = np.nan_to_num(values).clip(min=0)
    top = float(positive.max(initial=0.0)) if top is None else top
    return (positive / top).clip(max=1) if top > 0 else np.zeros_like(positive)


def over_picture(
    picture: Image.Image, explanation: Explanation, values: np.ndarray, top: float | None = None, width: int = 384
) -> Image.Image:
    """A picture with a map (regions,) over it, `width` pixels wide.

    Values are scaled by their largest, or by `top`. Cells of a grid become one smooth map; other regions, among them
    a region for the whole picture, become rectangles.
    """
    if explanation.boxes is None or explanation.size is None:
        raise DiptychError("explain: the picture's features have no boxes, so that nothing can be drawn on it")
    if len(values) != explanation.regions:
        raise DiptychError(f"explain: a map of {len(values)} values; expected one for each of {explanation.regions}")
    strength = scaled(values, top)
    canvas = enlarged(picture, width)
    scale = np.array(canvas.size * 2) / np.array(explanation.size * 2)
    boxes = explanation.boxes * scale
    cells = 0
    if explanation.grid is not None:
        cells = explanation.grid[0] * explanation.grid[1]
        canvas = _heat(canvas, strength[:cells].reshape(explanation.grid))
    if cells < len(boxes):
        canvas = _rectangles(canvas, boxes[cells:], strength[cells:], dim=not cells)
    return canvas


def enlarged(picture: Image.Image, width: int) -> Image.Image:
    """The picture at that width, its aspect kept; very tall ones are twice as high as wide at most."""
    ratio = min(width / picture.width, 2 * width / picture.height)
    size = max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def _heat(picture: Image.Image, cells: np.ndarray) -> Image.Image:
    """Night where there is nothing, the picture itself where there is much, and a glow of the ramp's colour."""
    small = Image.fromarray((cells * 255).astype(np.float32))
    values = np.asarray(small.resize(picture.size, Image.Resampling.BICUBIC)).clip(0, 255)[..., None] / 255
    pixels: np.ndarray = np.asarray(picture, dtype=np.float32)
    night = 0.5 * (1 - values)
    pixels = pixels * (1 - night) + np.array(NIGHT) * night
    glow = 0.55 * values
    pixels = pixels * (1 - glow) + ramp(values[..., 0]) * glow
    return Image.fromarray((pixels + 0.5).clip(0, 255).astype(np.uint8))


def _rectangles(picture: Image.Image, boxes: np.ndarray, strength: np.ndarray, dim: bool) -> Image.Image:
    """Outlines that are broader and brighter the stronger they are, over a dimmed picture that is lit inside them."""
    light = np.zeros((picture.height, picture.width, 1), dtype=np.float32)
    rounded = np.rint(boxes).astype(int)
    for (x0, y0, x1, y1), value in zip(rounded.tolist(), strength.tolist(), strict=True):
        if (x1 - x0) * (y1 - y0) > 0.9 * light.size:
            continue  # the whole picture: its outline tells, and its light would hide the others'
        part = light[max(0, y0) : y1, max(0, x0) : x1]
        np.maximum(part, value, out=part)
    pixels: np.ndarray = np.asarray(picture, dtype=np.float32)
    if dim:
        night = 0.55 * (1 - light)
        pixels = pixels * (1 - night) + np.array(NIGHT) * night
    canvas = Image.fromarray((pixels + 0.5).clip(0, 255).astype(np.uint8))
    brush = ImageDraw.Draw(canvas)
    broadest = max(3, round(picture.width / 64))
    for i in np.argsort(strength, kind="stable"):
        x0, y0, x1, y1 = rounded[i].tolist()
        if strength[i] < 0.04 or x1 - x0 < 2 or y1 - y0 < 2:
            continue
        outline = ramp(np.asarray(0.35 + 0.65 * strength[i])).astype(int).tolist()
        wide = max(1, round(broadest * float(strength[i])))
        x0, y0, x1, y1 = max(0, x0), max(0, y0), min(canvas.width, x1) - 1, min(canvas.height, y1) - 1
        if x1 > x0 and y1 > y0:
            brush.rectangle((x0, y0, x1, y1), outline=tuple(outline), width=wide)
    return canvas


def font(size: int) -> Font:
    """The one typeface that comes with Pillow."""
    return ImageFont.load_default(size)


def shade(value: float) -> Colour:
    """Paper for a value from -1 (blue) through 0 (white) to 1 (orange)."""
    full = HELPS if value >= 0 else HURTS
    part = 0.85 * min(1.0, abs(value))
    red, green, blue = (round(p * (1 - part) + c * part) for p, c in zip(PAPER, full, strict=True))
    return red, green, blue


def shades(values: np.ndarray, top: float | None = None) -> np.ndarray:
    """Values as `shade` takes them: against the largest of their sizes, or `top`."""
    top = float(np.abs(values).max(initial=0.0)) if top is None else top
    return np.clip(values / top, -1, 1) if top > 0 else np.zeros_like(values)


def shaded_words(words: Sequence[str], values: np.ndarray, width: int, size: int = 17) -> Image.Image:
    """The words of a sentence, each on paper shaded by its value from -1 to 1, wrapped to a width."""
    face = font(size)
    pad, gap, height = size // 4, size // 3, round(size * 1.75)
    rows: list[list[tuple[int, str, float]]] = [[]]
    x = 0
    for word, value in zip(words, values.tolist(), strict=True):
        wide = round(face.getlength(word)) + 2 * pad
        if rows[-1] and x + wide > width:
            rows.append([])
            x = 0
        rows[-1].append((x, word, value))
        x += wide + gap
    image = Image.new("RGB", (width, height * len(rows)), PAPER)
    brush = ImageDraw.Draw(image)
    for number, row in enumerate(rows):
        for left, word, value in row:
            top = number * height + round(size * 0.12)
            right = left + round(face.getlength(word)) + 2 * pad
            paper = shade(value)
            brush.rounded_rectangle((left, top, right, top + round(size * 1.45)), size // 4, fill=paper)
            dark = sum(p * w for p, w in zip(paper, (0.3, 0.59, 0.11), strict=True)) < 140
            middle = top + round(size * 0.72)
            brush.text((left + pad, middle), word, fill=PAPER if dark else INK, font=face, anchor="lm")
    return image
