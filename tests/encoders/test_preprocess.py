import numpy as np
import pytest
import torch
from PIL import Image

from diptych.encoders.preprocess import Preprocess, augment, normalise, resize
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
