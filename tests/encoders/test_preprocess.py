from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from diptych.common.errors import DiptychError
from diptych.data.collection import Item, open_path
from diptych.encoders.preprocess import Preprocess, augment, normalise, read_picture, resize
from tests.encoders.pictures import picture

MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)


def test_pixels_are_resized_scaled_and_normalised_per_channel() -> None:
    image = picture(60, 40)
    found = Preprocess(8, MEAN, STD)(image)
    resized = resize(image, (8, 8), Image.Resampling.BICUBIC).astype(np.float64)
    assert found.shape == (3, 8, 8)
    for channel in range(3):
        expected = (resized[..., channel] / 255 - MEAN[channel]) / STD[channel]
        np.testing.assert_allclose(found[channel].numpy(), expected, atol=1e-6)


def test_a_batch_is_normalised_as_each_picture_alone_and_is_channels_last() -> None:
    preprocess = Preprocess(8, MEAN, STD)
    images = [picture(seed=i) for i in range(3)]
    batch = normalise([preprocess.pixels(i) for i in images], MEAN, STD)
    assert torch.equal(batch, torch.stack([preprocess(i) for i in images]))
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("resample", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS])
@pytest.mark.parametrize("size", [(8, 8), (31, 17), (60, 40), (60, 41), (90, 80), (1, 1)])
def test_resizing_is_pillows(size: tuple[int, int], resample: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    for image in (picture(60, 40), Image.fromarray(noise)):
        expected = np.asarray(image.resize(size, Image.Resampling(resample))).astype(int)
        found = resize(image, size, resample)
        assert (found.shape, found.dtype) == ((size[1], size[0], 3), np.uint8)
        assert np.abs(found - expected).max() <= 1


def test_augmented_views_are_crops_of_the_right_size_half_of_them_mirrored() -> None:
    # Red says the column and green the row, so that a view tells where it was cut and whether it was mirrored.
    columns, rows = np.meshgrid(np.arange(100), np.arange(50))
    image = Image.fromarray(np.stack([columns, rows, 0 * rows], -1).astype(np.uint8))
    generator = torch.Generator().manual_seed(0)
    mirrored, ratios, lefts = 0, [], []
    for _ in range(400):
        view = np.asarray(augment(image, generator)).astype(int)
        height, width, _ = view.shape
        assert abs(width / 100 - height / 50) <= 0.02  # one ratio for both sides
        across = np.diff(view[0, :, 0])
        assert (across == 1).all() or (across == -1).all()
        assert (np.diff(view[:, 0, 1]) == 1).all()
        mirrored += bool((across == -1).all())
        ratios.append(width / 100)
        lefts.append(view[0, :, 0].min() / max(1, 100 - width))
    assert 160 < mirrored < 240
    assert 0.6 <= min(ratios) < 0.63
    assert 0.97 < max(ratios) <= 1
    assert 0.77 < np.mean(ratios) < 0.83
    assert min(lefts) < 0.05
    assert max(lefts) > 0.95


def test_augmentation_is_repeatable_and_works_on_one_pixel() -> None:
    views = [augment(picture(), torch.Generator().manual_seed(3)) for _ in range(2)]
    assert views[0].tobytes() == views[1].tobytes()
    assert augment(picture(1, 1), torch.Generator()).size == (1, 1)


def item(path: Path) -> Item:
    return Item("a", (), open=open_path(path), path=str(path))


def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same_afterwards(tmp_path: Path) -> None:
    picture(640, 480).save(tmp_path / "a.jpg", quality=95)
    image, size = read_picture(item(tmp_path / "a.jpg"), 48)
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
    small, size = read_picture(item(tmp_path / "a.jpg"), 20)
    large, whole_size = read_picture(item(tmp_path / "a.jpg"), 200)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "a.jpg"))
    assert size == whole_size == large.size == upright.size
    assert small.width < large.width
    difference = np.asarray(small.resize((16, 16))).astype(int) - np.asarray(large.resize((16, 16)))
    assert np.abs(difference).mean() < 3


def test_other_modes_and_small_pictures_come_out_whole_and_rgb(tmp_path: Path) -> None:
    picture(400, 400).convert("L").save(tmp_path / "grey.jpg")
    picture(30, 20).convert("RGBA").save(tmp_path / "small.png")
    grey, grey_size = read_picture(item(tmp_path / "grey.jpg"), 20)
    small, small_size = read_picture(item(tmp_path / "small.png"), 20)
    assert grey.mode == small.mode == "RGB"
    assert (grey_size, small_size) == ((400, 400), (30, 20))


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    picture(400, 400).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:900])
    with pytest.raises(DiptychError, match=r"cut\.jpg"):
        read_picture(item(tmp_path / "cut.jpg"), 20)
    with pytest.raises(DiptychError, match="a: the data has no picture"):
        read_picture(Item("a", ()), 20)
