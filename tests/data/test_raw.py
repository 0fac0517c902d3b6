"""RAW files as LibRaw reads them, made here."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data import raw
from diptych.data.open_picture import open_picture, open_with_size
from diptych.data.photo import Columns
from diptych.data.pictures import PictureFile, file_columns
from diptych.data.raw import is_raw
from tests.data.dng import write_dng

pytest.importorskip("rawpy", reason="RAW files need diptych[raw]")


def halves(width: int, height: int) -> Image.Image:
    """Red above blue."""
    image = Image.new("RGB", (width, height), (200, 20, 20))
    image.paste((20, 20, 200), (0, height // 2, width, height))
    return image


def assert_red_above_blue(image: Image.Image) -> None:
    values = np.asarray(image).astype(int)
    upper, lower = values[: image.height // 3].mean((0, 1)), values[-(image.height // 3) :].mean((0, 1))
    assert upper[0] - upper[2] > 120
    assert lower[2] - lower[0] > 120


BACK = {
    1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270,
}  # fmt: skip


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("side", [None, 50])
def test_the_preview_is_shown_upright(tmp_path: Path, orientation: int, side: int | None) -> None:
    """The preview lies as the sensor saw it, and the file says how the camera was held."""
    wanted = halves(480, 640) if orientation in (6, 8) else halves(640, 480)
    turn = BACK[orientation]
    path = write_dng(tmp_path / "a.dng", wanted if turn is None else wanted.transpose(turn), orientation)
    told: Columns = {}
    image, size = open_with_size(path, side, told.update)
    assert size == wanted.size
    assert image.size == (wanted.size if side is None else (wanted.width // 4, wanted.height // 4))
    assert_red_above_blue(image)
    assert_red_above_blue(PictureFile(path)())
    sides = {"width": 48, "height": 64} if orientation in (6, 8) else {"width": 64, "height": 48}
    own = {"taken": "2019-07-04T12:30:00", "camera": "Testmaker One", "lens": "Fine Lens 50mm", **sides}
    assert told == own == file_columns(path)


def test_a_preview_that_was_turned_already_stays(tmp_path: Path) -> None:
    path = write_dng(tmp_path / "a.dng", halves(480, 640), 6)
    assert open_picture(path).size == (480, 640)
    assert_red_above_blue(open_picture(path))


def test_without_a_preview_the_picture_itself_is_developed(tmp_path: Path) -> None:
    image = open_picture(write_dng(tmp_path / "a.dng", None, 6))
    assert image.size == (24, 32)  # at half its size, turned


def test_what_is_no_raw_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.nef").write_bytes(b"nothing at all")
    with pytest.raises(DiptychError, match=r"a\.nef: not a RAW file that can be read: \w+"):
        open_picture(tmp_path / "a.nef")
    with pytest.raises(DiptychError, match=r"a\.nef"):
        file_columns(tmp_path / "a.nef")
    with pytest.raises(DiptychError, match="no such picture"):
        open_picture(tmp_path / "b.nef", 100)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    whole = write_dng(tmp_path / "a.dng", halves(640, 480)).read_bytes()
    for part in (12, 300, len(whole) // 2):
        (tmp_path / "cut.dng").write_bytes(whole[:part])
        with pytest.raises(DiptychError, match=r"cut\.dng"):
            open_picture(tmp_path / "cut.dng")


def test_a_preview_too_large_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dng(tmp_path / "a.dng", halves(640, 480))
    monkeypatch.setenv("DIPTYCH_MAX_PIXELS", "100000")
    with pytest.raises(DiptychError, match="too large to decode safely"):
        open_picture(path)


def test_without_the_package_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dng(tmp_path / "a.dng", halves(640, 480))
    monkeypatch.setattr(raw, "raw_is_read", lambda: False)
    with pytest.raises(DiptychError, match=r"a\.dng: .*install diptych\[raw\]"):
        open_picture(path)


def test_endings() -> None:
    assert all(is_raw(name) for name in ("a.CR2", "b.nef", "c.ARW", "d.dng", "x/y.cr3", "z.RAF"))
    assert not any(is_raw(name) for name in ("a.jpg", "nef", "a.raw.txt"))
