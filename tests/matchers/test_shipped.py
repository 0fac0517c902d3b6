"""The models that come with Diptych: whole, small, and right about two photographs that scikit-learn carries."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open

from diptych.common.model_place import shipped_folder
from diptych.matchers.base import Matcher

NAMES = ("default", "default-reranker")
SENTENCES = ["a temple with a curved roof and stairs", "a close up of a pink flower", "a dog runs through the snow"]


def folder(name: str) -> Path:
    found = shipped_folder(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    datasets = pytest.importorskip("sklearn.datasets")
    return [Image.fromarray(datasets.load_sample_image(name)) for name in ("china.jpg", "flower.jpg")]


@pytest.fixture(scope="module", params=NAMES)
def matcher(request: pytest.FixtureRequest) -> Matcher:
    return Matcher.from_pretrained(request.param)


def test_together_they_are_small() -> None:
    sizes = [path.stat().st_size for name in NAMES for path in folder(name).rglob("*") if path.is_file()]
    assert sum(sizes) < 64 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_in_half_precision(name: str) -> None:
    with safe_open(folder(name) / "model.safetensors", framework="pt") as file:
        kinds = {file.get_tensor(key).dtype for key in file.keys()}  # noqa: SIM118
    assert torch.float16 in kinds
    assert not kinds & {torch.float32, torch.float64}


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_must_be_known(name: str) -> None:
    card = (folder(name) / "README.md").read_text(encoding="utf-8")
    for word in ("Flickr8k", "research", "Licence", "Limits", "R@1"):
        assert word in card


@pytest.mark.parametrize("name", NAMES)
def test_the_metrics_end_with_what_the_card_says(name: str) -> None:
    lines = [json.loads(line) for line in (folder(name) / "metrics.jsonl").read_text().splitlines()]
    best = max(line["validation"]["rsum"] for line in lines if "validation" in line)
    assert f"{best:.1f}" in (folder(name) / "README.md").read_text(encoding="utf-8")


def test_it_tells_two_photographs_apart(matcher: Matcher, photographs: list[Image.Image]) -> None:
    scores = matcher.similarity(photographs, SENTENCES)
    assert scores.argmax(0).tolist()[:2] == [0, 1]  # each sentence finds its picture
    assert scores.argmax(1).tolist() == [0, 1]  # and each picture its sentence


def test_the_reranker_needs_what_the_default_model_computes() -> None:
    reranker, default = Matcher.from_pretrained("default-reranker"), Matcher.from_pretrained("default")
    theirs = dict(default.image_encoder.backbone.named_parameters())
    ours = dict(reranker.extractor().named_parameters())
    assert ours
    assert all(torch.equal(value, next(v for k, v in theirs.items() if key.endswith(k))) for key, value in ours.items())
