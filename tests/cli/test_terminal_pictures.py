import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from diptych.cli.terminal_pictures import Cells, blocks, drawn, fitted, iterm, kitty, sixel
from tests.encoders.pictures import picture


def decoded(data: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def test_kitty_gets_a_png_in_pieces() -> None:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (90, 71, 3), np.uint8))  # noise: several pieces
    text = kitty(image, 7, 5)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{about};{data}\x1b\\" for about, data in pieces) == text
    assert len(pieces) > 2
    assert all(len(data) <= 4096 and len(data) % 4 == 0 for _, data in pieces)
    assert pieces[0][0] == "a=T,f=100,q=2,c=7,r=5,m=1"
    assert [about.rpartition("m=")[2] for about, _ in pieces] == ["1"] * (len(pieces) - 1) + ["0"]
    assert (decoded("".join(data for _, data in pieces)) == np.asarray(image)).all()


def test_iterm_gets_one_sequence() -> None:
    image = picture(31, 17)
    match = re.fullmatch(r"\x1b\]1337;File=(.*?):(.*)\x07", iterm(image, 4, 2))
    assert match is not None
    about = dict(pair.split("=") for pair in match[1].split(";"))
    assert about["inline"] == "1"
    assert (about["width"], about["height"], int(about["size"])) == ("4", "2", len(base64.b64decode(match[2])))
    assert (decoded(match[2]) == np.asarray(image)).all()


def draw_sixels(text: str) -> np.ndarray:
    """A slow terminal: what the sequence draws, -1 where nothing was."""
    match = re.fullmatch(r'\x1bPq"1;1;(\d+);(\d+)(.*)\x1b\\', text, re.DOTALL)
    assert match is not None
    width, height = int(match[1]), int(match[2])
    canvas = np.full((height + 6, width, 3), -1.0)
    colours: dict[int, list[float]] = {}
    x = y = colour = 0
    for token in re.findall(r"#\d+(?:;2;\d+;\d+;\d+)?|!\d+.|[$-]|[?-~]", match[3]):
        if token[0] == "#":
            number, *levels = token[1:].split(";")
            colour = int(number)
            if levels:
                colours[colour] = [int(level) * 2.55 for level in levels[1:]]
        elif token == "$":
            x = 0
        elif token == "-":
            x, y = 0, y + 6
        else:
            count, character = (int(token[1:-1]), token[-1]) if token[0] == "!" else (1, token)
            for row in range(6):
                if (ord(character) - 63) >> row & 1:
                    canvas[y + row, x : x + count] = colours[colour]
            x += count
    assert (canvas[height:] == -1).all()
    return canvas[:height]


@pytest.mark.parametrize(("width", "height"), [(1, 1), (20, 6), (33, 20), (50, 13)])
def test_sixels_draw_the_picture(width: int, height: int) -> None:
    image = picture(width, height, seed=width)
    reduced = np.asarray(image.quantize(255).convert("RGB")).astype(float)
    shown = draw_sixels(sixel(image))
    assert np.abs(shown - reduced).max() <= 255 / 100  # colours are told in hundredths


def test_blocks_are_two_rows_a_line() -> None:
    pixels = np.arange(3 * 2 * 3, dtype=np.uint8).reshape(3, 2, 3)
    lines = blocks(Image.fromarray(pixels)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("\x1b[38;2;0;1;2;48;2;6;7;8m▀")
    assert lines[1].startswith("\x1b[38;2;12;13;14;49m▀")
    assert all(line.endswith("\x1b[0m") for line in lines)


def test_pictures_fit_their_room_in_their_own_proportions() -> None:
    cells = Cells(columns=10, rows=4, width=8, height=16)
    wide = picture(400, 100)
    assert "c=10,r=2," in drawn(wide, "kitty", cells)
    assert "width=10;height=2;" in drawn(wide, "iterm", cells)
    assert '"1;1;80;20' in drawn(wide, "sixel", cells)
    assert drawn(wide, "blocks", cells).count("▀") == 20  # three rows are two lines
    assert fitted(picture(5, 5), 100, 100).size == (5, 5)
    assert all(drawn(wide, way, cells).endswith("\n") for way in ("kitty", "iterm", "sixel", "blocks"))
