"""Pictures of every kind come out as upright 8-bit RGB, or as one clear sentence."""

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import open_path
from diptych.data.open_picture import open_picture
from diptych.data.pictures import PictureBytes, PictureFile, PicturePart, to_rgb
from tests.data.making import picture, picture_bytes


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(0, (12, 8)).save(path, exif=exif)
    opened = open_path(path)()
    assert opened.size == (8, 12)
    assert np.array_equal(np.asarray(opened), np.rot90(np.asarray(picture(0, (12, 8))), -1))


def test_broken_exif_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    picture().save(path, exif=b"Exif\x00\x00nothing that means anything")
    assert open_path(path)().size == (12, 8)


@pytest.mark.parametrize(
    ("mode", "suffix"), [("CMYK", "jpg"), ("L", "png"), ("P", "gif"), ("1", "png"), ("LA", "png"), ("YCbCr", "jpg")]
)
def test_modes(tmp_path: Path, mode: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    grey = Image.new("RGB", (6, 5), (120, 120, 120))
    (grey.quantize(4) if mode == "P" else grey.convert(mode)).save(path)
    opened = open_path(path)()
    assert opened.mode == "RGB"
    assert opened.size == (6, 5)
    if mode != "1":
        assert np.abs(np.asarray(opened).astype(int) - 120).max() < 12


def test_transparency_is_over_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    image.save(tmp_path / "a.png")
    assert np.asarray(open_path(tmp_path / "a.png")()).tolist() == [[[255] * 3, [10, 20, 30]]]
    palette = Image.new("P", (1, 1), 0)
    palette.putpalette([9, 9, 9] * 256)
    palette.save(tmp_path / "p.png", transparency=0)
    assert open_path(tmp_path / "p.png")().getpixel((0, 0)) == (255, 255, 255)


def test_sixteen_bits_are_scaled_not_cut(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert np.asarray(open_path(tmp_path / "a.png")())[0, :, 0].tolist() == [0, 100, 255]
    unit = Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32))
    assert np.asarray(to_rgb(unit))[0, :, 0].tolist() == [0, 128, 255]


def test_decompression_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(0, (40, 40)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DiptychError, match=r"a\.png: the picture is too large to decode safely"):
        open_path(tmp_path / "a.png")()


def test_more_pixels_than_are_taken_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    Image.new("L", (40, 30)).save(path)
    monkeypatch.setattr("diptych.data.pictures.MOST_PIXELS", 1199)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("it was decoded"))
    with pytest.raises(DiptychError, match=r"a\.png: .*too large.*40 x 30 pixels, at most 1,199"):
        PictureFile(path)()
    monkeypatch.undo()
    for told in ("x", "0", "-5", "1e9"):
        monkeypatch.setenv("DIPTYCH_MAX_PIXELS", told)
        with pytest.raises(DiptychError, match="DIPTYCH_MAX_PIXELS"):
            PictureFile(path)()
    monkeypatch.setenv("DIPTYCH_MAX_PIXELS", "1200")
    assert PictureFile(path)().size == (40, 30)
    monkeypatch.setenv("DIPTYCH_MAX_PIXELS", "1199")
    with pytest.raises(DiptychError, match="at most 1,199"):
        PictureFile(path)()


@pytest.mark.parametrize("kind", ["I;16", "I", "F", "RGBA", "LA", "P"])
def test_strips_give_what_the_whole_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    if kind in ("RGBA", "LA", "P"):
        image = Image.fromarray(rng.integers(0, 256, (23, 17, 4), np.uint8), "RGBA").convert(kind)
        if kind == "P":
            image.info["transparency"] = 3
    else:
        dtypes = {"I;16": np.uint16, "I": np.int32, "F": np.float32}
        image = Image.fromarray(rng.integers(0, 65536, (23, 17)).astype(dtypes[kind]))
    whole = np.asarray(to_rgb(image))
    monkeypatch.setattr("diptych.data.pictures.PIXELS_AT_ONCE", 60)
    assert np.array_equal(np.asarray(to_rgb(image)), whole)


def test_deep_grey_is_never_there_in_several_copies() -> None:
    image = Image.new("I;16", (4000, 4000), 30000)
    tracemalloc.start()
    assert to_rgb(image).getpixel((0, 0)) == (117, 117, 117)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20  # numpy's share; the whole as float64 is 128 MB, several times


def test_what_starts_programs_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript under a picture's name is no picture, and no interpreter of it is started."""
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    path = tmp_path / "a.jpg"
    Image.new("RGB", (8, 8)).save(path, "EPS")
    with pytest.raises(DiptychError, match=r"a\.jpg: not a picture of a known format"):
        PictureFile(path)()
    with pytest.raises(DiptychError, match="not a picture of a known format"):
        PictureBytes(path.read_bytes(), "here")()
    with pytest.raises(DiptychError, match="not a picture of a known format"):
        open_picture(PictureFile(path), 1)


def test_unreadable_pictures(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"gone\.jpg: no such picture"):
        open_path(tmp_path / "gone.jpg")()
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(DiptychError, match=r"text\.jpg: not a picture of a known format"):
        open_path(tmp_path / "text.jpg")()
    big = picture_bytes(0, (200, 200))
    (tmp_path / "cut.jpg").write_bytes(big[: len(big) // 2])
    with pytest.raises(DiptychError, match=r"cut\.jpg: the picture cannot be decoded: .*truncated"):
        open_path(tmp_path / "cut.jpg")()
    stream = io.BytesIO()
    picture(0, (200, 200)).save(stream, "PNG")
    (tmp_path / "bad.png").write_bytes(stream.getvalue()[:3000] + b"\x00" * 3000)
    with pytest.raises(DiptychError, match=r"bad\.png: the picture cannot be decoded"):
        open_path(tmp_path / "bad.png")()


def test_a_part_of_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"x\.tar: a\.jpg: cannot be read: No such file"):
        PicturePart(tmp_path / "x.tar", "a.jpg", 0, 10)()
