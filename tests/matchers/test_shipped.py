"""The model that comes with Diptych: whole, small, and right about two photographs that scikit-learn carries."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from diptych.common.model_place import SHIPPED, shipped_folder
from diptych.encoders.extract import load_extractor
from diptych.matchers.base import Matcher
from diptych.matchers.vse import VSEConfig
from diptych.training.recipe import read_recipe

RECIPE = Path(__file__).parents[2] / "recipes" / "default.toml"
SENTENCES = ["a temple with a curved roof and stairs", "a close up of a pink flower", "a dog runs through the snow"]


@pytest.fixture(scope="module")
def folder() -> Path:
    found = shipped_folder("default")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    datasets = pytest.importorskip("sklearn.datasets")
    return [Image.fromarray(datasets.load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return Matcher.from_pretrained("default")


def test_no_other_ships(folder: Path) -> None:
    assert sorted(path.name for path in folder.parent.iterdir() if path.is_dir()) == list(SHIPPED) == ["default"]


def test_it_is_small(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 64 * 2**20


def test_weights_are_in_half_precision(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        kinds = {file.get_tensor(key).dtype for key in file.keys()}  # noqa: SIM118
    assert torch.float16 in kinds
    assert not kinds & {torch.float32, torch.float64}


def test_the_card_says_what_must_be_known(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("COCO", "CC BY 4.0", "Flickr8k", "research", "Licence", "Limits", "R@1"):
        assert word in card


def test_the_metrics_end_with_what_the_card_says(folder: Path) -> None:
    logs = sorted(folder.glob("metrics*.jsonl"))
    assert len(logs) == 3
    for log in logs:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        best = max(line["validation"]["rsum"] for line in lines if "validation" in line)
        assert f"{best:.1f}" in (folder / "README.md").read_text(encoding="utf-8"), log.name


def test_the_recipe_is_that_of_the_model_and_its_log(folder: Path, matcher: Matcher) -> None:
    recipe = read_recipe(RECIPE)
    assert isinstance(matcher.config, VSEConfig)
    assert matcher.config.hubs is not None  # levelled after training
    assert replace(matcher.config, hubs=None) == recipe.model
    validated = [line for line in map(json.loads, (folder / "metrics.jsonl").open()) if "validation" in line]
    every, last = recipe.training.evaluate_epochs, recipe.training.epochs
    assert [line["epoch"] + 1 for line in validated] == [*range(every, last, every), last]


def test_it_tells_two_photographs_apart(matcher: Matcher, photographs: list[Image.Image]) -> None:
    scores = matcher.similarity(photographs, SENTENCES)
    assert scores.argmax(0).tolist()[:2] == [0, 1]  # each sentence finds its picture
    assert scores.argmax(1).tolist() == [0, 1]  # and each picture its sentence


def test_it_sees_all_of_a_wide_photograph(matcher: Matcher, photographs: list[Image.Image]) -> None:
    plain = Image.new("RGB", (1600, 400), (120, 120, 120))
    ends = plain.copy()
    for left in (0, 1200):  # the square in the middle, from 600 to 1000, has none of it
        ends.paste(photographs[1].resize((400, 400)), (left, 0))
    one, other = matcher.encode_images([plain, ends]).vectors[:, 0]
    assert torch.cosine_similarity(one, other, 0) < 0.9
    pixels = matcher.extractor().prepare(ends)
    size = pixels.shape[0]
    whole = np.asarray(ends.resize((size, size), Image.Resampling.BICUBIC))
    assert np.abs(pixels.astype(int) - whole).mean() < 2


def test_features_that_are_named_after_it_are_those_that_it_computes(matcher: Matcher) -> None:
    theirs = dict(matcher.extractor().named_parameters())
    ours = dict(load_extractor("default", 260).named_parameters())
    assert ours
    assert all(torch.equal(value, next(v for k, v in theirs.items() if key.endswith(k))) for key, value in ours.items())
