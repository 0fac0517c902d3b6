"""A run that begins with another's weights."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.common.errors import DiptychError
from diptych.common.model_place import shipped_folder
from diptych.data.collection import sentences
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.scan import SCANConfig
from diptych.matchers.vse import VSEConfig
from diptych.training.data import Splits
from diptych.training.loop import Device, Outcome, train
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe, read_recipe
from diptych.training.start import build_for, take_weights
from tests.training import pixel_toy, toy
from tests.training.test_loop_loss import interrupt_after

IMAGE = FeatureConfig(feature_dim=8)
STILL = OptimiserConfig(kind="sgd", lr=0.0)


def go(recipe: Recipe, run: Path, init_from: Path | None, splits: Splits | None = None) -> Outcome:
    source = None if init_from is None else str(init_from)
    return train(recipe, run, Device("cpu"), splits or toy.splits(), source)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("first") / "run"
    go(toy.recipe(epochs=2), run, None)
    return run


@pytest.mark.parametrize("model", [None, "best"])
def test_a_run_begins_with_the_weights_of_another(model: str | None, first: Path, tmp_path: Path) -> None:
    source = first if model is None else first / model
    go(toy.recipe(epochs=1, seed=7, optimiser=STILL), tmp_path / "run", source)
    for name, tensor in weights(first / "best").items():
        assert torch.equal(weights(tmp_path / "run" / "last")[name], tensor), name
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["starts"][0]["init_from"] == str(source)


def test_a_run_that_goes_on_has_its_own_weights(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy.recipe(epochs=2, seed=7)
    go(recipe, tmp_path / "unbroken", first)
    copy = shutil.copytree(first, tmp_path / "copy", symlinks=True)
    monkeypatch.setattr("tests.training.test_loop_loss.go", lambda recipe, run: go(recipe, run, copy))
    interrupt_after(3, recipe, tmp_path / "broken", monkeypatch)
    shutil.rmtree(copy)
    go(recipe, tmp_path / "broken", copy)
    for name, tensor in weights(tmp_path / "unbroken" / "last").items():
        assert torch.equal(weights(tmp_path / "broken" / "last")[name], tensor), name


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (VSEConfig(dim=8, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=6)), "has shape"),
        (SCANConfig(dim=16, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=6, layers=2)), "is missing"),
        (
            VSEConfig(dim=16, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=6, bidirectional=False)),
            "left over",
        ),
    ],
    ids=["shape", "missing", "left over"],
)
def test_weights_that_do_not_fit_are_told_in_one_sentence(
    model: VSEConfig | SCANConfig, words: str, first: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        DiptychError, match=rf"model\.safetensors: the weight '.*' .*{words}.*; to begin with its weights"
    ):
        go(toy.recipe(model=model), tmp_path / "run", first)
    assert not (tmp_path / "run" / "recipe.json").exists()


def other_words() -> Splits:
    data = toy.splits()
    items = [
        replace(item, sentences=sentences([f"{toy.WORDS[i % 8]} thing"], str(i)))
        for i, item in enumerate(data.train.items)
    ]
    return replace(data, train=replace(data.train, items=items))


def test_other_words_are_told_and_their_file_named(first: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DiptychError, match=r"best/vocabulary\.json: has other words than this recipe; give data\.vocab"
    ) as error:
        go(toy.recipe(epochs=1), tmp_path / "run", first, other_words())
    path = str(error.value).rpartition("data.vocabulary=")[2].removesuffix(" as well")
    recipe = toy.recipe(epochs=1)
    go(replace(recipe, data=replace(recipe.data, vocabulary=path)), tmp_path / "run", first, other_words())


def test_nothing_to_begin_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"nowhere: no such folder or model; expected"):
        go(toy.recipe(), tmp_path / "run", Path("nowhere"))


def test_a_matcher_over_the_others_local_features_takes_all_but_the_backbone(tmp_path: Path) -> None:
    whole = pixel_toy.recipe(tmp_path, epochs=1)
    data = pixel_toy.splits()
    torch.manual_seed(3)
    saved = build_for(whole, data)
    saved.save_pretrained(tmp_path / "model")
    assert isinstance(whole.model, VSEConfig)
    backbone = str(tmp_path / "model")
    image = FeatureConfig(feature_dim=saved.extractor().dim, backbone=backbone, size=pixel_toy.SIZE)
    recipe = replace(whole, model=replace(whole.model, image=image, drop_cells=False))
    torch.manual_seed(4)
    matcher = build_for(recipe, data)
    take_weights(matcher, backbone)
    theirs = saved.state_dict()
    assert any(name.startswith("image_encoder.backbone.") for name in theirs)
    for name, tensor in matcher.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
    pictures = [item.open() for item in data.train.items[:3] if item.open is not None]
    expected, found = (m.encode_images(pictures).vectors for m in (saved.eval(), matcher.eval()))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    other = replace(recipe, model=replace(recipe.model, image=replace(image, backbone=whole.model.image.backbone)))  # type: ignore[arg-type,union-attr]
    with pytest.raises(DiptychError, match=r"'image_encoder\.backbone\..*is left over"):
        take_weights(build_for(other, data), backbone)


def test_the_recipe_that_tunes_the_model_that_ships_fits_it() -> None:
    """Both ways of tuning: over the features of its backbone, and the whole of it."""
    if shipped_folder("default") is None:
        pytest.skip("this checkout does not carry the model that ships")
    pytest.importorskip("efficientnet_lite_pytorch", reason="diptych[backbones] is not installed")
    path = Path(__file__).parents[2] / "recipes" / "tune-default.toml"
    for variant in (None, "whole"):
        matcher = build_for(read_recipe(path, variant), toy.splits())
        before = matcher.image_encoder.fc.weight.clone()  # type: ignore[union-attr]
        take_weights(matcher, "default")
        assert not torch.equal(matcher.image_encoder.fc.weight, before)  # type: ignore[union-attr]
