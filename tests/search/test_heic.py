"""HEIC pictures, made by the encoder that the decoder comes with."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data import pictures
from diptych.data.pictures import PictureBytes, PictureFile
from diptych.search.index import Index
from diptych.search.stores.keys import open_key

pillow_heif = pytest.importorskip("pillow_heif")
ORIENTATION = 0x0112


def halves() -> Image.Image:
    """Red above blue, 64 wide and 48 high."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[:24], pixels[24:] = (250, 20, 20), (20, 20, 250)
    return Image.fromarray(pixels)


def save_heic(path: Path, image: Image.Image, orientation: int | None = None) -> Path:
    heif = pillow_heif.from_pillow(image)
    exif = Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    heif.save(path, quality=95, exif=exif.tobytes() if orientation is not None else None)
    assert path.read_bytes()[4:12] == b"ftypheic"
    return path


def assert_red_above_blue(image: Image.Image, size: tuple[int, int]) -> None:
    assert (image.mode, image.size) == ("RGB", size)
    values = np.asarray(image).astype(int)
    upper, lower = values[: size[1] // 3].mean((0, 1)), values[-(size[1] // 3) :].mean((0, 1))
    assert upper[0] - upper[2] > 150
    assert lower[2] - lower[0] > 150


def test_a_heic_picture_is_decoded(tmp_path: Path) -> None:
    path = save_heic(tmp_path / "a.heic", halves())
    assert_red_above_blue(PictureFile(path)(), (64, 48))
    assert_red_above_blue(PictureBytes(path.read_bytes(), "memory")(), (64, 48))


@pytest.mark.parametrize(
    ("orientation", "before"),
    [(3, Image.Transpose.ROTATE_180), (6, Image.Transpose.ROTATE_90), (8, Image.Transpose.ROTATE_270)],
)
def test_it_is_turned_as_exif_says(tmp_path: Path, orientation: int, before: Image.Transpose) -> None:
    """Saved turned away from upright, with the note that turns it back."""
    path = save_heic(tmp_path / "a.heic", halves().transpose(before), orientation)
    assert_red_above_blue(PictureFile(path)(), (64, 48))


def test_it_is_indexed_like_any_other(vse_folder: str, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    halves().save(folder / "plain.png")
    save_heic(folder / "upright.heic", halves())
    save_heic(folder / "turned.HEIC", halves().transpose(Image.Transpose.ROTATE_90), 6)
    (folder / "broken.heic").write_bytes(b"no picture at all")
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as index:
        report = index.sync(folder)
        assert report.added == 3
        assert [Path(problem.where).name for problem in report.problems] == ["broken.heic"]
        assert index.sync(folder).unchanged == 3
        # The same picture three times, up to what the encoder lost.
        results = index.search(folder / "turned.HEIC", top=3).results
        assert [result.score for result in results] == pytest.approx([1, 1, 1], abs=0.02)
        assert {Path(result.path).name for result in results} == {"plain.png", "upright.heic", "turned.HEIC"}


def test_another_process_opens_it_by_its_key(tmp_path: Path) -> None:
    """Re-ranking and the page open pictures in a process that never indexed any."""
    path = save_heic(tmp_path / "a.heic", halves())
    code = "import sys; from diptych.search.stores.keys import open_key; print(open_key(sys.argv[1])().size)"
    told = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "(64, 48)"


def test_without_the_decoder_it_is_no_known_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.heic"
    path.write_bytes(b"\0\0\0\x18ftypxxxx" + bytes(40))
    monkeypatch.setattr(pictures, "heic_is_read", lambda: False)
    with pytest.raises(DiptychError, match="not a picture of a known format"):
        open_key(str(path))()
