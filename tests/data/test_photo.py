"""What photographs say of themselves, written into files as cameras do."""

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.open_picture import open_with_size
from diptych.data.photo import Columns, camera_name, clean, photo_columns, taken_text
from diptych.data.pictures import PictureBytes, file_columns

DETAILS, PLACE = 0x8769, 0x8825


def exif(orientation: int = 1, place: dict[int, Any] | None = None, **more: Any) -> Image.Exif:
    made = Image.Exif()
    made[0x0112], made[271], made[272] = orientation, "Canon", "Canon EOS R5"
    made.get_ifd(DETAILS).update({36867: "2019:07:04 12:30:00", 42036: "RF 50mm F1.8"} | more.get("details", {}))
    if place is not None:
        made.get_ifd(PLACE).update(place)
    return made


HERE = {1: "N", 2: (47.0, 22.0, 36.0), 3: "W", 4: (8.0, 32.0, 30.0)}
ALL: Columns = {
    "taken": "2019-07-04T12:30:00", "camera": "Canon EOS R5", "lens": "RF 50mm F1.8", "latitude": 47.376667,
    "longitude": -8.541667, "width": 80, "height": 60,
}  # fmt: skip


def noted(path: Path, side: int | None) -> tuple[Columns, tuple[int, int]]:
    told: Columns = {}
    image, size = open_with_size(path, side, told.update)
    assert image.mode == "RGB"
    return told, size


@pytest.mark.parametrize("side", [None, 10, 100], ids=["whole", "reduced", "too small to reduce"])
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif", ".avif"])
def test_everything_is_read_as_the_picture_is_opened(tmp_path: Path, suffix: str, side: int | None) -> None:
    path = tmp_path / f"a{suffix}"
    made = exif(place=HERE)
    if suffix == ".tif":  # of which Pillow writes directories only so
        made[DETAILS], made[PLACE] = dict(made.get_ifd(DETAILS)), dict(made.get_ifd(PLACE))
    Image.new("RGB", (80, 60), "teal").save(path, exif=made)
    told, size = noted(path, side)
    assert told == ALL
    assert size == (80, 60)
    assert file_columns(path) == ALL
    assert PictureBytes(path.read_bytes(), "memory")(told.update).size == (80, 60)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
@pytest.mark.parametrize("orientation", [3, 6])
def test_sides_are_those_of_the_upright_picture(tmp_path: Path, suffix: str, orientation: int) -> None:
    path = tmp_path / f"a{suffix}"
    Image.new("RGB", (80, 60)).save(path, exif=exif(orientation))
    told, size = noted(path, 10)
    assert (told["width"], told["height"]) == size == ((60, 80) if orientation == 6 else (80, 60))


def test_a_picture_without_exif_has_its_sides(tmp_path: Path) -> None:
    Image.new("L", (9, 7)).save(tmp_path / "a.png")
    assert file_columns(tmp_path / "a.png") == {"width": 9, "height": 7}


@pytest.mark.parametrize(
    "place",
    [
        {1: "N", 2: (0.0, 0.0, 0.0), 3: "E", 4: (0.0, 0.0, 0.0)},
        {1: "N", 2: (91.0, 0.0, 0.0), 3: "E", 4: (8.0, 0.0, 0.0)},
        {1: "N", 2: (47.0, 0.0), 3: "E", 4: (8.0, 0.0, 0.0)},
        {1: "N", 2: (47.0, 0.0, 0.0)},
    ],
    ids=["no satellite", "beyond the pole", "two numbers", "half a place"],
)
def test_an_impossible_place_is_none(tmp_path: Path, place: dict[int, Any]) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg", exif=exif(place=place))
    assert not {"latitude", "longitude"} & file_columns(tmp_path / "a.jpg").keys()


@pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")
def test_a_broken_block_says_nothing_and_costs_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Image.new("RGB", (32, 32)).save(tmp_path / "a.jpg", exif=exif(place=HERE))
    good = (tmp_path / "a.jpg").read_bytes()
    start = good.index(b"Exif\0\0") + 6
    for _ in range(60):
        data = bytearray(good)
        for place in rng.integers(start, start + 260, 12):
            data[place] = rng.integers(256)
        (tmp_path / "b.jpg").write_bytes(data)
        told = file_columns(tmp_path / "b.jpg")
        assert sorted((told["width"], told["height"])) == [32, 32]
        for value in told.values():
            assert isinstance(value, str | int | float)


def test_what_is_no_picture_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"nothing")
    with pytest.raises(DiptychError, match=r"a\.jpg: the picture cannot be read"):
        file_columns(tmp_path / "a.jpg")


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("2019:07:04 12:30:00", "2019-07-04T12:30:00"),
        ("2019:07:04 12:30:00\0", "2019-07-04T12:30:00"),
        ("2019:07:04 12:30:00.25", "2019-07-04T12:30:00"),
        (datetime(2019, 7, 4, 12, 30), "2019-07-04T12:30:00"),
        ("0000:00:00 00:00:00", None),
        ("    :  :     :  :  ", None),
        ("2019:13:04 12:30:00", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_moments(value: Any, taken: str | None) -> None:
    assert taken_text(value) == taken


def test_names() -> None:
    assert camera_name("NIKON CORPORATION", "NIKON D850") == "NIKON D850"
    assert camera_name("Apple", "iPhone 15") == "Apple iPhone 15"
    assert (camera_name("", "X100"), camera_name("Leica", ""), camera_name("", "")) == ("X100", "Leica", "")
    assert clean("  Fine\x01 lens\t5 \0rubbish") == "Fine lens 5"
    assert clean(b"caf\xc3\xa9 \xff") == "café \ufffd"
    assert clean("\ud800") == "?"
    assert (clean(None), clean(7), len(clean("x" * 999))) == ("", "", 200)


def test_pictures_in_memory_have_columns_too() -> None:
    assert photo_columns(Image.new("RGB", (5, 4))) == {"width": 5, "height": 4}
