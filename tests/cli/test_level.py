"""`diptych level`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.cli.main import run
from diptych.encoders.quick.int8_ranges import FILE
from diptych.matchers.base import Matcher
from diptych.matchers.hubs import Bank, HubConfig
from diptych.matchers.vse import VSE
from diptych.training.start import build_for
from tests.evaluation import tiny
from tests.training import pixel_toy


@pytest.fixture
def model(tmp_path: Path) -> str:
    tiny.matcher().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / FILE).write_text("{}")
    return str(tmp_path / "model")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tiny.precomp(tmp_path / "tiny_precomp"))


def test_a_folder_that_scores_otherwise_and_says_by_what(
    model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "levelled"
    options = [
        "--data",
        data,
        "--split",
        "test",
        "--prototypes",
        "4",
        "--share",
        "0.5",
        "--sentence-share",
        "0.2",
        "--half",
    ]
    assert run(["level", model, *options, "--out", str(out)]) == 0
    assert f"levelled by 9 pictures and 45 sentences of {data}" in capsys.readouterr().out
    levelled = Matcher.from_pretrained(out)
    assert isinstance(levelled, VSE)
    assert levelled.config.hubs is not None
    hubs = levelled.config.hubs
    assert (hubs.prototypes, hubs.share, hubs.sentence_share) == (4, 0.5, 0.2)
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} >= {torch.float16}
    assert f"levelled by 9 pictures and 45 sentences of {data}" in (out / "README.md").read_text()
    assert (out / FILE).read_text() == "{}"  # of the image encoder, which is the same
    assert run(["evaluate", str(out), "--data", data]) == 0


def test_some_of_the_pictures_with_their_sentences(
    model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", data, "--split", "test", "--limit", "3"]
    assert run(["level", model, *options, "--out", str(tmp_path / "levelled")]) == 0
    assert "3 pictures and 15 sentences" in capsys.readouterr().out


def test_pictures_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = pixel_toy.recipe(tmp_path)
    plain = build_for(recipe, pixel_toy.splits())
    plain.save_pretrained(tmp_path / "model")
    items = pixel_toy.collection().split("train").items
    folder = tmp_path / "pictures" / "train"
    folder.mkdir(parents=True)
    for item in items:
        assert item.open is not None
        item.open().save(folder / f"{item.id}.png")
        (folder / f"{item.id}.txt").write_text("\n".join(sentence.text for sentence in item.sentences))
    options = ["--data", str(tmp_path / "pictures"), "--prototypes", "8", "--share", "1"]
    assert run(["level", str(tmp_path / "model"), *options, "--out", str(tmp_path / "levelled")]) == 0
    assert "8 pictures and 16 sentences" in capsys.readouterr().out
    found = Matcher.from_pretrained(tmp_path / "levelled")
    expected = Matcher.from_pretrained(tmp_path / "model")
    images = expected.encode_images([item.open for item in items if item.open is not None])
    texts = expected.encode_texts([sentence.text for item in items for sentence in item.sentences])
    expected.level([Bank(images.vectors[:, 0], texts.vectors[:, 0])], HubConfig(prototypes=8, share=1.0))
    assert isinstance(found, VSE)
    assert isinstance(expected, VSE)
    assert found.text_hubs is not None  # against pictures, each of which is a prototype
    assert expected.text_hubs is not None
    vectors = texts.vectors[:, 0]
    torch.testing.assert_close(found.text_hubs(vectors), expected.text_hubs(vectors), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--share", "2"], "share: expected"),
        (["--sentence-share", "-1"], "sentence_share: expected"),
        (["--prototypes", "0"], "prototypes: expected"),
        (["--split", "train"], "train"),
        (["--features", "a.npy", "--features", "b.npy"], "one for each of 1 --data, got 2"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(
    more: list[str], message: str, model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "levelled"
    split = [] if "--split" in more else ["--split", "test"]
    assert run(["level", model, "--data", data, *split, "--out", str(out), *more]) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("kind", ["dive", "scan-t2i-lse", "vse++-order"])
def test_other_matchers_are_refused_before_anything_is_encoded(
    kind: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.matcher(kind).save_pretrained(tmp_path / "other")
    monkeypatch.setattr("diptych.cli.level.encoded", lambda *arguments: pytest.fail("encoded"))
    out = tmp_path / "levelled"
    assert run(["level", str(tmp_path / "other"), "--data", data, "--split", "test", "--out", str(out)]) == 1
    assert "hubs are levelled where" in capsys.readouterr().err
    assert not out.exists()


def test_nothing_is_written_over(model: str, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["level", model, "--data", data, "--out", model]) == 1
    assert "already there" in capsys.readouterr().err
