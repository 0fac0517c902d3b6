from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures
from diptych.data.collection import Collection, Regions
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.training import loop, signals
from diptych.training.batches import Augmentation, Batch, RunDataset, epoch_batches
from diptych.training.held_features import HeldFeatures, HeldRows, hold, hold_splits
from diptych.training.loop import Device, train
from diptych.training.start import build_for
from diptych.training.validation import validate
from tests.training import pixel_toy, toy
from tests.training.test_loop import metrics, weights

CPU = torch.device("cpu")


class Halves(toy.ToyFeatures):
    """The same in half precision, as feature files have them."""

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.rows[row].astype(np.float16))


def half_toy() -> Collection:
    whole = toy.collection()
    features = whole.features
    assert isinstance(features, toy.ToyFeatures)
    half = Halves([])
    half.rows = features.rows
    return replace(whole, features=half)


def batches(data: Collection, drop: float, starts: torch.Tensor | None, rank: int = 0, world: int = 1) -> RunDataset:
    tokenizer = WordTokenizer(Vocabulary.build(data.captions()[0], at_least=1))
    steps = partial(epoch_batches, data, "captions", 7, 3)
    augmentation = Augmentation(drop_regions=drop, drop_words=0.3)
    return RunDataset(data, tokenizer, None, augmentation, steps, 3, rank, world, held_starts=starts)


def same(asked: Batch, ordinary: Batch, held: HeldFeatures) -> None:
    assert isinstance(asked.images, HeldRows)
    assert isinstance(ordinary.images, LocalFeatures)
    images = held.cut(asked.images)
    assert images.vectors.dtype == torch.float32
    assert torch.equal(images.vectors, ordinary.images.vectors)
    assert torch.equal(images.mask, ordinary.images.mask)
    assert torch.equal(asked.texts.ids, ordinary.texts.ids)
    assert torch.equal(asked.picture_ids, ordinary.picture_ids)
    assert torch.equal(asked.owners, ordinary.owners)


@pytest.mark.parametrize("drop", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("make", [toy.collection, half_toy])
def test_a_step_sees_what_it_would_have_read(drop: float, make: type[Collection]) -> None:
    data = make()
    data = data.split("val", "train")  # positions in the collection are not rows of the features
    data = replace(data, items=data.items[::-1])
    held = HeldFeatures.load(data, CPU)
    alone = replace(data, features=None)
    for place in [(0, 0), (0, 3), (2, 1)]:
        for rank, world in [(0, 1), (1, 2)]:
            ordinary = batches(data, drop, None, rank, world)[place]
            same(batches(alone, drop, held.starts, rank, world)[place], ordinary, held)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("drop", [0.0, 0.4])
def test_a_gpu_cuts_what_it_holds(drop: float) -> None:
    data, gpu = toy.collection(), torch.device("cuda")
    asked = batches(replace(data, features=None), drop, HeldFeatures.load(data, CPU).starts)[0, 0].images
    assert isinstance(asked, HeldRows)
    there, here = HeldFeatures.load(data, gpu).cut(asked.to(gpu)), HeldFeatures.load(data, CPU).cut(asked)
    assert torch.equal(there.vectors.cpu(), here.vectors)
    assert (there.real is None) == (here.real is None)
    assert here.real is None or torch.equal(there.real.cpu(), here.real)


def test_features_stay_in_the_precision_of_their_file() -> None:
    assert HeldFeatures.load(half_toy(), CPU).vectors.dtype == torch.float16
    assert HeldFeatures.load(toy.collection(), CPU).vectors.dtype == torch.float32


def test_many_pictures_lie_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.training.held_features.CHUNK", 5)
    data = toy.collection(23)
    held = HeldFeatures.load(data, CPU)
    assert data.features is not None
    assert len(held) == 23
    for row in (0, 4, 5, 22):
        np.testing.assert_array_equal(held[row].vectors, data.features[row].vectors)


def test_a_held_collection_is_held_once() -> None:
    data = hold(toy.collection(), CPU)
    assert hold(data, CPU) is data
    splits = hold_splits(toy.splits(), CPU)
    again = hold_splits(splits, CPU)
    assert again.train is splits.train
    assert again.validations[0] is splits.validations[0]


def test_validation_of_held_features_gives_the_usual_figures() -> None:
    splits = toy.splits()
    matcher = build_for(toy.recipe(), splits)
    held = [hold(splits.validation, CPU)]
    assert validate(matcher, held) == pytest.approx(validate(matcher, [splits.validation]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_on_held_features_is_the_same_run(workers: int, tmp_path: Path) -> None:
    settings = {"epochs": 2, "drop_regions": 0.3, "drop_words": 0.2}
    train(toy.recipe(None, None, **settings), tmp_path / "read", Device("cpu"), toy.splits())
    recipe = toy.recipe(None, None, **settings, hold_features=True, workers=workers)
    train(recipe, tmp_path / "held", Device("cpu"), toy.splits())
    for name, tensor in weights(tmp_path / "read").items():
        assert torch.equal(weights(tmp_path / "held")[name], tensor), name
    steps = [[entry for entry in metrics(tmp_path / run) if "loss" in entry] for run in ("read", "held")]
    assert steps[0] == steps[1]


def test_a_held_run_out_of_time_goes_on_to_the_weights_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = toy.recipe(None, None, epochs=3, drop_regions=0.3, hold_features=True)
    train(recipe, tmp_path / "whole", Device("cpu"), toy.splits())
    clock = iter([0.0, 1.0, 2.0])
    with monkeypatch.context() as patch:
        patch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        outcome = train(recipe, tmp_path / "broken", Device("cpu"), toy.splits(), until=2.0)
    assert (outcome.finished, outcome.ended, outcome.position.total) == (False, "signal", 3)
    assert train(recipe, tmp_path / "broken", Device("cpu"), toy.splits()).finished
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "broken")[name], tensor), name
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "broken")


def test_nothing_is_read_again_during_a_held_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = hold_splits(toy.splits(), CPU)

    def fail(*arguments: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(HeldFeatures, "load", fail)
    monkeypatch.setattr(HeldFeatures, "__getitem__", fail)
    assert train(toy.recipe(hold_features=True), tmp_path / "run", Device("cpu"), splits).finished


def test_a_number_that_is_not_finite_names_its_picture() -> None:
    data = toy.collection()
    assert isinstance(data.features, toy.ToyFeatures)
    data.features.rows[3][0, 2] = np.nan
    with pytest.raises(DiptychError, match=r"^3: its local features hold nan \(vector 0, number 2\)"):
        HeldFeatures.load(data, CPU)


def test_a_picture_without_features_is_named() -> None:
    data = toy.collection(3)
    broken = replace(data, items=[*data.items[:2], replace(data.items[2], row=None)])
    with pytest.raises(DiptychError, match=r"^2: the feature file has no row"):
        HeldFeatures.load(broken, CPU)
    with pytest.raises(DiptychError, match=r"^toy: the data has no local features"):
        HeldFeatures.load(replace(data, features=None), CPU)


def test_holding_features_for_a_matcher_of_pictures_is_refused(tmp_path: Path) -> None:
    recipe = pixel_toy.recipe(tmp_path, epochs=1, hold_features=True)
    with pytest.raises(DiptychError, match=r"training\.hold_features: this matcher takes pictures"):
        train(recipe, tmp_path / "run", Device("cpu"), pixel_toy.splits())


def test_batches_only_say_what_to_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    step = loop.Trainer._step

    def noted(self: loop.Trainer, batch: Batch, epoch: int) -> object:
        seen.append(batch.images)
        assert self.dataset.collection.features is None
        return step(self, batch, epoch)

    monkeypatch.setattr(loop.Trainer, "_step", noted)
    train(toy.recipe(epochs=1, hold_features=True), tmp_path / "run", Device("cpu"), toy.splits())
    assert seen
    assert all(isinstance(images, HeldRows) for images in seen)


def test_a_held_collection_that_is_cut_keeps_to_its_own_pictures() -> None:
    whole = hold(toy.collection(), CPU)
    assert isinstance(whole.features, HeldFeatures)
    cut = replace(whole, items=list(whole.items[2:]))
    again = hold(cut, CPU)
    assert isinstance(again.features, HeldFeatures)
    assert [item.row for item in again.items] == list(range(len(cut)))
    for old, new in zip(cut.items, again.items, strict=True):
        assert np.array_equal(whole.features[old.row].vectors, again.features[new.row].vectors)
