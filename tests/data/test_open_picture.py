"""One way to open a picture, from wherever it is given."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from diptych.common.errors import DiptychError
from diptych.data.collection import open_path
from diptych.data.open_picture import open_picture, open_with_size
from diptych.encoders.preprocess import Preprocess
from tests.encoders.pictures import picture

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same_afterwards(tmp_path: Path) -> None:
    picture(640, 480).save(tmp_path / "a.jpg", quality=95)
    image, size = open_with_size(tmp_path / "a.jpg", 48)
    assert size == (640, 480)
    assert image.size == (160, 120)  # a quarter; an eighth would be below twice the side
    whole = open_path(tmp_path / "a.jpg")()
    preprocess = Preprocess(48, MEAN, STD)
    difference = preprocess.pixels(image).astype(int) - preprocess.pixels(whole)
    assert np.abs(difference).mean() < 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_pictures_stand_upright_whether_decoded_smaller_or_not(tmp_path: Path, orientation: int) -> None:
    image = picture(320, 240)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "a.jpg", quality=95, exif=exif)
    small, size = open_with_size(tmp_path / "a.jpg", 20)
    large, whole_size = open_with_size(tmp_path / "a.jpg", 200)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "a.jpg"))
    assert size == whole_size == large.size == upright.size
    assert small.width < large.width
    difference = np.asarray(small.resize((16, 16))).astype(int) - np.asarray(large.resize((16, 16)))
    assert np.abs(difference).mean() < 3


def test_other_modes_and_small_pictures_come_out_whole_and_rgb(tmp_path: Path) -> None:
    picture(400, 400).convert("L").save(tmp_path / "grey.jpg")
    picture(30, 20).convert("RGBA").save(tmp_path / "small.png")
    grey, grey_size = open_with_size(tmp_path / "grey.jpg", 20)
    small, small_size = open_with_size(tmp_path / "small.png", 20)
    assert grey.mode == small.mode == "RGB"
    assert (grey_size, small_size) == ((400, 400), (30, 20))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    picture(400, 400).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:900])
    with pytest.raises(DiptychError, match=r"cut\.jpg"):
        open_with_size(tmp_path / "cut.jpg", 20)


def turned(path: Path, orientation: int = 6) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(30, 20).save(path, exif=exif)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp"])
def test_however_it_is_given_it_is_the_same_upright_picture(tmp_path: Path, name: str) -> None:
    path = turned(tmp_path / name)
    given = Image.open(path)
    opened = [open_picture(p) for p in (path, str(path), open_path(path), given, lambda: given)]
    assert {image.size for image in opened} == {(20, 30)}
    assert {image.mode for image in opened} == {"RGB"}
    assert len({image.tobytes() for image in opened}) == 1
    assert given.size == ((20, 30) if name == "a.tif" else (30, 20))  # only Pillow turned it, as it does TIFFs
    assert open_picture(opened[3]).tobytes() == opened[3].tobytes()  # nor is it turned twice


def test_without_a_side_a_large_jpeg_is_whole(tmp_path: Path) -> None:
    picture(640, 480).save(tmp_path / "a.jpg")
    assert open_picture(tmp_path / "a.jpg").size == (640, 480)
    assert open_picture(tmp_path / "a.jpg", 48).size == (160, 120)
