"""Pictures as a terminal draws them: kitty's and iTerm's sequences, sixels, or two coloured halves a character."""

import base64
import io
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

Way = Literal["kitty", "iterm", "sixel", "blocks"]
# What one of kitty's sequences may hold.
CHUNK = 4096
COLOURS = 255


@dataclass(frozen=True)
class Cells:
    """The room for a picture, in characters, and the size of a character in pixels."""

    columns: int = 48
    rows: int = 12
    width: int = 10
    height: int = 20


def drawn(image: Image.Image, way: Way, cells: Cells) -> str:
    """What a terminal must be sent to show a picture in RGB, with a line's end behind it."""
    if way == "blocks":
        return blocks(fitted(image, cells.columns, 2 * cells.rows))
    image = fitted(image, cells.columns * cells.width, cells.rows * cells.height)
    if way == "sixel":
        return sixel(image) + "\n"
    columns, rows = math.ceil(image.width / cells.width), math.ceil(image.height / cells.height)
    return (kitty if way == "kitty" else iterm)(image, columns, rows) + "\n"


def fitted(image: Image.Image, width: int, height: int) -> Image.Image:
    """A picture made small enough, never larger than it is, in its own proportions."""
    small = image.copy()
    small.thumbnail((width, height))
    return small


def kitty(image: Image.Image, columns: int, rows: int) -> str:
    """Kitty's graphics protocol: a PNG in pieces, shown where the cursor is; the terminal answers nothing."""
    data = _png(image)
    pieces = [data[i : i + CHUNK] for i in range(0, len(data), CHUNK)]
    about = f"a=T,f=100,q=2,c={columns},r={rows},"
    parts = []
    for number, piece in enumerate(pieces):
        more = int(number < len(pieces) - 1)
        parts.append(f"\x1b_G{about if number == 0 else 'q=2,'}m={more};{piece}\x1b\\")
    return "".join(parts)


def iterm(image: Image.Image, columns: int, rows: int) -> str:
    """ITerm's inline pictures: one sequence with a PNG."""
    data = _png(image)
    size = len(base64.b64decode(data))
    return f"\x1b]1337;File=inline=1;size={size};width={columns};height={rows};preserveAspectRatio=1:{data}\x07"


def sixel(image: Image.Image) -> str:
    """Six rows at a time, and in each a line of sixels for every colour that it has."""
    reduced = image.convert("RGB").quantize(COLOURS)
    pixels = np.asarray(reduced)
    palette = np.asarray(reduced.getpalette() or [], np.int64).reshape(-1, 3)
    height, width = pixels.shape
    used = np.unique(pixels)
    parts = [f'\x1bPq"1;1;{width};{height}']
    parts += [f"#{c};2;{';'.join(str(round(int(v) * 100 / 255)) for v in palette[c])}" for c in used]
    for top in range(0, height, 6):
        band = pixels[top : top + 6]
        bits = (1 << np.arange(len(band)))[:, None]
        lines = [f"#{c}{_runs(((band == c) * bits).sum(0))}" for c in np.unique(band)]
        parts.append("$".join(lines) + "-")
    return "".join(parts) + "\x1b\\"


def blocks(image: Image.Image) -> str:
    """Two rows a line: the upper one in the character's colour, the lower one behind it."""
    pixels = np.asarray(image.convert("RGB")).tolist()
    lines = []
    for top in range(0, len(pixels), 2):
        lower = pixels[top + 1] if top + 1 < len(pixels) else [None] * len(pixels[top])
        line = "".join(_two(upper, under) for upper, under in zip(pixels[top], lower, strict=True))
        lines.append(line + "\x1b[0m\n")
    return "".join(lines)


def _two(upper: list[int], under: list[int] | None) -> str:
    behind = "49" if under is None else "48;2;{};{};{}".format(*under)
    return "\x1b[38;2;{};{};{};{}m▀".format(*upper, behind)


def _runs(values: np.ndarray) -> str:
    """Sixels (w,) of 0 to 63 as characters, a run of more than three as its length and one of them."""
    ends = np.flatnonzero(np.diff(values)) + 1
    starts = [0, *ends.tolist()]
    parts = []
    for start, end in zip(starts, [*ends.tolist(), len(values)], strict=True):
        character, count = chr(63 + int(values[start])), end - start
        parts.append(f"!{count}{character}" if count > 3 else character * count)
    return "".join(parts)


def _png(image: Image.Image) -> str:
    out = io.BytesIO()
    image.save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()
