import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.cli.main import run
from diptych.data.scenes import captioned
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.catalog import build_matcher
from diptych.matchers.scan import SCANConfig
from tests.evaluation import tiny
from tests.matchers.inputs import FEATURE_DIM

SCENE = captioned(0, 12)


@pytest.fixture
def scenes(tmp_path: Path) -> str:
    """A model for drawn scenes, untrained."""
    torch.manual_seed(0)
    config = SCANConfig(dim=8, image=FeatureConfig(feature_dim=438), text=GRUConfig(word_dim=6))
    tokenizer = WordTokenizer(Vocabulary.build([c.text for c in SCENE.captions], at_least=1))
    build_matcher(config, tokenizer).save_pretrained(tmp_path / "scan" / "best")
    return str(tmp_path / "scan")


def test_a_drawn_scene_as_page_picture_and_arrays(scenes: str, tmp_path: Path) -> None:
    text = SCENE.captions[0].text
    for name in ("out.html", "out.png", "out.json"):
        assert run(["explain", "scene-0-12", text, "--model", scenes, "--out", str(tmp_path / name)]) == 0
    assert "<svg" in (tmp_path / "out.html").read_text()
    with Image.open(tmp_path / "out.png") as image:
        assert image.width == 960
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["words"] == SCENE.captions[0].words
    assert told["arrays"]["word_to_region"]["axes"] == ["words", "regions"]
    values = np.array(told["arrays"]["word_to_region"]["values"])
    assert list(values.shape) == told["arrays"]["word_to_region"]["shape"]
    np.testing.assert_allclose(values.sum(1), 1, atol=1e-5)


def test_two_pairs_and_their_swaps(scenes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ["--other-image", "scene-0-13", "--other-sentence", "a red star", "--no-left-out"]
    arguments = ["explain", "scene-0-12", "a blue square", "--model", scenes, *other]
    for name in ("both.html", "both.png"):
        assert run([*arguments, "--out", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert run([*arguments, "--out", str(tmp_path / "both.json"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "both.json").read_text())
    assert np.shape(told["scores"]) == (2, 2)
    assert told["pairs"][0][1]["sentence"] == "a red star"
    assert "word_drop" not in told["pairs"][0][0]["arrays"]


def test_features_by_the_picture_s_id(tmp_path: Path) -> None:
    tiny.matcher("camp").save_pretrained(tmp_path / "camp")
    folder = tmp_path / "features"
    folder.mkdir()
    vectors = np.random.default_rng(0).normal(size=(2, 3, FEATURE_DIM)).astype(np.float32)
    for name, array in zip(("one", "two"), vectors, strict=True):
        np.save(folder / f"{name}.npy", array)
    arguments = ["--model", str(tmp_path / "camp"), "--features", str(folder)]
    scores = []
    for image in ("one.jpg", "two"):
        out = tmp_path / "out.json"
        assert run(["explain", image, "a red dog", *arguments, "--out", str(out)]) == 0
        scores.append(json.loads(out.read_text())["score"])
    expected = tiny.matcher("camp").similarity(list(vectors), ["a red dog"])[:, 0]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert run(["explain", "two", "a red dog", *arguments, "--out", str(tmp_path / "out.html")]) == 0
    assert "data-region" in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scene-0-12", "a dog", "--out", "x.gif"], "expected a name that ends in .html, .png, .json"),
        (["gone.jpg", "a dog", "--out", "x.json"], "gone.jpg: no such picture"),
        (["scene-0-12", "...", "--out", "x.json"], "has no words"),
        (["scene-0-12", "a dog", "--out", "x.json", "--other-image", "scene-0-13"], "expected both or neither"),
        (["scene-0-12", "a dog", "--out", "x.json", "--sentences", "gone.txt"], "gone.txt cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    scenes: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["explain", *arguments, "--model", scenes]) == 1
    assert message in capsys.readouterr().err
