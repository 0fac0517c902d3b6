from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from diptych.common.errors import DiptychError
from diptych.data.batches import Pixels
from diptych.data.collection import Collection
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.preprocess import Preprocess, resize
from diptych.training import loop
from diptych.training.batches import Augmentation, RunDataset, epoch_batches
from diptych.training.held_pictures import HeldPictures, Views, decode_pixels, draw_views, resizing
from diptych.training.loop import Device, train
from diptych.training.start import build_for
from diptych.training.validation import validate
from tests.encoders.pictures import picture
from tests.training import pixel_toy, toy
from tests.training.test_loop import metrics, weights

CPU = torch.device("cpu")
BICUBIC, BILINEAR = int(Image.Resampling.BICUBIC), int(Image.Resampling.BILINEAR)


def preprocess(size: int = 32, resample: int = BICUBIC) -> Preprocess:
    return Preprocess(size, (0.5,) * 3, (0.5,) * 3, resample)


def batches(data: Collection, size: int, augment: bool, held: int | None, rank: int = 0, world: int = 1) -> RunDataset:
    tokenizer = WordTokenizer(Vocabulary.build(data.captions()[0], at_least=1))
    steps = partial(epoch_batches, data, "all-captions", 5, 3)
    augmentation = Augmentation(drop_words=0.3, pictures=augment)
    return RunDataset(data, tokenizer, preprocess(size), augmentation, steps, 3, rank, world, held)


def values(images: object) -> np.ndarray:
    assert isinstance(images, Pixels)
    return images.values.numpy().astype(int)


@pytest.mark.parametrize(("augment", "shape"), [(False, (32, 32)), (False, (47, 33)), (True, (32, 32))])
def test_a_step_sees_what_it_would_have_seen_of_pictures_that_are_decoded_anew(
    augment: bool, shape: tuple[int, int]
) -> None:
    data = pixel_toy.collection(12, shape)
    held = HeldPictures.decode(data, preprocess(), 32, CPU, workers=0)
    for place in [(0, 0), (0, 1), (1, 0)]:
        ordinary = batches(data, 32, augment, None)[place]
        asked = batches(data, 32, augment, 32)[place]
        assert isinstance(asked.images, Views)
        assert torch.equal(asked.texts.ids, ordinary.texts.ids)
        difference = np.abs(values(held.cut(asked.images)) - values(ordinary.images)).max()
        assert difference <= 1 if augment else difference == 0


def test_pictures_held_smaller_are_enlarged_as_pillow_does() -> None:
    data = pixel_toy.collection(12, (28, 28))
    held = HeldPictures.decode(data, preprocess(), 28, CPU, workers=0)
    ordinary = batches(data, 32, True, None)[0, 0]
    asked = batches(data, 32, True, 28)[0, 0]
    assert isinstance(asked.images, Views)
    assert np.abs(values(held.cut(asked.images)) - values(ordinary.images)).max() <= 1


@pytest.mark.parametrize("resample", [BICUBIC, BILINEAR])
@pytest.mark.parametrize("box", [(0, 0, 40, 40), (3, 11, 24, 25), (39, 0, 1, 40), (10, 5, 30, 30), (0, 12, 28, 28)])
@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("size", [20, 40, 57])
def test_a_view_is_pillows_crop_and_resize(
    box: tuple[int, int, int, int], mirror: bool, size: int, resample: int
) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    images = [picture(40, 40), noise]
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    views = Views(torch.tensor([0, 1]), torch.tensor([box] * 2), torch.tensor([mirror] * 2))
    found = values(HeldPictures(pixels, size, resample).cut(views))
    x, y, width, height = box
    for image, view in zip(images, found, strict=True):
        crop = image.crop((x, y, x + width, y + height))
        expected = np.asarray(
            (ImageOps.mirror(crop) if mirror else crop).resize((size, size), Image.Resampling(resample))
        )
        assert np.abs(view - expected.astype(int)).max() <= 1


def test_weights_of_a_line_sum_to_one_and_stay_inside_the_stretch() -> None:
    found = resizing(torch.tensor([0, 5]), torch.tensor([12, 3]), 12, 7, BICUBIC)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 7))
    assert found[1, :, :5].eq(0).all()
    assert found[1, :, 8:].eq(0).all()


def test_views_follow_from_the_generator_and_keep_the_order_of_pictures() -> None:
    drawn = [draw_views([7, 2, 9], 64, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert drawn[0].pictures.tolist() == [7, 2, 9]
    assert torch.equal(drawn[0].boxes, drawn[1].boxes)
    assert len(drawn[0].boxes.unique(dim=0)) == 3
    whole = draw_views([7, 2], 64, None)
    assert whole.boxes.tolist() == [[0, 0, 64, 64]] * 2
    assert not whole.mirrored.any()


def test_each_process_cuts_its_share() -> None:
    data = pixel_toy.collection()
    shares = [batches(data, 32, True, 32, rank, 2)[0, 0] for rank in range(2)]
    pictures = [share.images.pictures.tolist() for share in shares if isinstance(share.images, Views)]
    whole = batches(data, 32, True, 32)[0, 0]
    assert sorted(pictures[0] + pictures[1]) == sorted(whole.picture_ids.tolist())


@pytest.mark.parametrize("workers", [0, 2])
def test_every_picture_is_decoded_to_its_place(workers: int) -> None:
    data = pixel_toy.collection(70, (20, 16))
    found = decode_pixels(data, preprocess(12), CPU, workers)
    assert found.shape == (70, 12, 12, 3)
    for i in (0, 31, 32, 69):
        np.testing.assert_array_equal(found[i], resize(picture(20, 16, seed=i), (12, 12), BICUBIC))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_is_not_there_is_named(workers: int) -> None:
    data = pixel_toy.collection(3)
    broken = replace(data, items=[*data.items[:2], replace(data.items[2], id="gone", open=None)])
    with pytest.raises(DiptychError, match=r"^gone: the data has no picture"):
        decode_pixels(broken, preprocess(), CPU, workers)


def test_validation_of_held_pixels_gives_the_usual_figures(tmp_path: Path) -> None:
    splits = pixel_toy.splits()
    matcher = build_for(pixel_toy.recipe(tmp_path), splits)
    held = [decode_pixels(splits.validation, preprocess(), CPU, 0)]
    assert validate(matcher, [splits.validation], held) == pytest.approx(validate(matcher, [splits.validation]))


def test_a_held_run_that_stopped_ends_with_the_weights_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = pixel_toy.recipe(tmp_path, epochs=3, hold_pictures=36)
    train(recipe, tmp_path / "whole", Device("cpu"), pixel_toy.splits())
    step = loop.Trainer._step

    def stopped(self: loop.Trainer, *arguments: object) -> object:
        self.stop.asked = self.position.total == 2
        return step(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(loop.Trainer, "_step", stopped)
        assert not train(recipe, tmp_path / "broken", Device("cpu"), pixel_toy.splits()).finished
    assert train(recipe, tmp_path / "broken", Device("cpu"), pixel_toy.splits()).finished
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "broken")[name], tensor), name
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "broken")


def test_holding_pictures_for_a_matcher_of_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"training\.hold_pictures: .* features"):
        train(toy.recipe(hold_pictures=32), tmp_path / "run", Device("cpu"), toy.splits())
