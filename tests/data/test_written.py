"""Text in pictures that are drawn here."""

import pytest
from PIL import Image, ImageDraw, ImageFont

from diptych.data.written import LARGEST, text_reader

pytest.importorskip("rapidocr", reason="reading text in pictures needs diptych[ocr]")
pytest.importorskip("onnxruntime", reason="reading text in pictures needs diptych[ocr]")


def drawn(text: str, size: tuple[int, int] = (480, 160)) -> Image.Image:
    image = Image.new("RGB", size, (235, 230, 220))
    ImageDraw.Draw(image).text((30, 40), text, fill=(20, 20, 60), font=ImageFont.load_default(size[1] // 3))
    return image


def test_what_is_drawn_is_read() -> None:
    read = text_reader()
    assert read(drawn("PARKING 42")).split() == ["PARKING", "42"]
    assert read(Image.new("RGB", (64, 64), "grey")) == ""
    large = drawn("HARBOUR", (LARGEST * 2, LARGEST // 2))
    assert read(large) == "HARBOUR"
    assert large.size == (LARGEST * 2, LARGEST // 2)
