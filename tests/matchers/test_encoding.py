"""One picture or sentence, or many, in every form that people have them."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.common import progress
from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.vse import VSEConfig
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import detr, save
from tests.matchers import inputs
from tests.search import tiny

SENTENCES = ["a red dog", "two boat", "the cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for seed, name in enumerate(("dog", "boat", "cat")):
        picture(seed=seed).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> Matcher:
    return Matcher.from_pretrained(tiny.save_vse(tmp_path_factory.mktemp("pixels") / "model"))


@pytest.fixture(scope="module")
def features() -> Matcher:
    config = VSEConfig(dim=8, image=FeatureConfig(feature_dim=inputs.FEATURE_DIM), text=GRUConfig(word_dim=5))
    torch.manual_seed(0)
    return build_matcher(config, inputs.word_tokenizer()).eval()


def files(folder: Path) -> list[Path]:
    return [folder / f"{name}.png" for name in ("dog", "boat", "cat")]


def test_pictures_in_every_form_are_encoded_alike(pixels: Matcher, folder: Path) -> None:
    paths = files(folder)
    expected = np.asarray(pixels.encode_images(paths))
    arrays = [np.asarray(Image.open(path)) for path in paths]
    forms: list[Any] = [
        [str(path) for path in paths],
        (path for path in paths),
        tuple(Image.open(path) for path in paths),
        arrays,
        np.stack(arrays),
        np.stack(arrays) / 255,
        torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2),
        [path.read_bytes() for path in paths],
        (io.BytesIO(path.read_bytes()) for path in paths),
        [paths[0], arrays[1], paths[2].read_bytes()],
    ]
    for form in forms:
        np.testing.assert_allclose(pixels.encode_images(form, batch_size=2).numpy(), expected, atol=1e-6)
    for place, one in enumerate((str(paths[0]), arrays[1], paths[2].read_bytes())):
        np.testing.assert_allclose(np.asarray(pixels.encode_images(one))[0], expected[place], atol=1e-6)


def test_sentences_in_every_form_are_encoded_alike(pixels: Matcher) -> None:
    expected = pixels.encode_texts(SENTENCES).numpy()
    for form in (tuple(SENTENCES), iter(SENTENCES), np.array(SENTENCES)):
        np.testing.assert_allclose(pixels.encode_texts(form, batch_size=2).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(pixels.encode_texts("two boat").numpy(), expected[1:2], atol=1e-6)


def test_a_generator_is_asked_for_one_batch_at_a_time_and_outside_of_inference_mode(
    pixels: Matcher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def given() -> Iterator[Path]:
        for path in files(folder):
            assert not torch.is_inference_mode_enabled()
            events.append(path.stem)
            yield path

    keep = pixels.keep_images

    def kept(encoded: Any) -> Any:
        events.append("kept")
        return keep(encoded)

    monkeypatch.setattr(pixels, "keep_images", kept)
    pixels.encode_images(given(), batch_size=2)
    assert events == ["dog", "boat", "kept", "cat", "kept"]


@pytest.mark.parametrize("given", [torch.randn(4, inputs.FEATURE_DIM), np.ones((4, inputs.FEATURE_DIM))])
def test_local_features_of_one_picture(features: Matcher, given: Any) -> None:
    alone = features.encode_images(given).numpy()
    for same in ([given], given[None], Regions(np.asarray(given)), [Regions(np.asarray(given))]):
        np.testing.assert_allclose(features.encode_images(same).numpy(), alone, atol=1e-6)


def test_pictures_and_local_features_may_come_together(tmp_path: Path) -> None:
    folder = save(detr(), tmp_path / "detr")
    image = FeatureConfig(feature_dim=16, backbone=str(folder), size=32, regions=3)
    matcher = build_matcher(VSEConfig(dim=8, image=image, text=GRUConfig(word_dim=5)), inputs.word_tokenizer()).eval()
    red, blue = (Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    found = matcher.extractor().regions([red])[0]
    mixed, plain = matcher.encode_images([blue, found, np.asarray(blue)]), matcher.encode_images([blue, red, blue])
    torch.testing.assert_close(mixed.vectors, plain.vectors)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.encode_images("nowhere.jpg"), r"nowhere\.jpg: no such picture"),
        (lambda m: m.encode_images([]), "expected at least one of the pictures"),
        (lambda m: m.encode_images(iter([])), "expected at least one of the pictures"),
        (lambda m: m.encode_images(17), "pictures: expected a file's name.* got int"),
        (lambda m: m.encode_images(["dog.png"], batch_size=0), "batch_size: expected at least 1"),
        (lambda m: m.encode_images([np.zeros((2, 5))]), "built for pictures, and was given local features"),
        (lambda m: m.encode_images([np.zeros((2, 5)), Image.new("RGB", (8, 8))]), "was given local features"),
        (lambda m: m.encode_texts([]), "expected at least one of the sentences"),
        (lambda m: m.encode_texts(["a", None]), "sentence 1: expected text, got NoneType"),
        (lambda m: m.encode_texts("dog", device="cuda:99"), "device: 'cuda:99' cannot be used"),
        (lambda m: m.rank("dog", ["a.png"], top=0), "top: expected at least 1"),
        (lambda m: m.rank("dog", ["a.png"], kind="text"), "kind: expected 'sentence' or 'picture', got 'text'"),
        (lambda m: m.rank(m.encode_texts("dog"), ["a.png"]), "say kind='sentence' or kind='picture'"),
        (lambda m: m.rank(m.encode_texts(["a", "b"]), m.encode_texts("a"), kind="sentence"), "one query, got 2"),
    ],
)
def test_what_cannot_be_encoded_is_said_in_one_sentence(pixels: Matcher, call: Any, words: str) -> None:
    with pytest.raises(DiptychError, match=words):
        call(pixels)


def test_what_is_kept_goes_where_it_is_told(pixels: Matcher, folder: Path) -> None:
    assert pixels.encode_texts("dog", device="cpu").device.type == "cpu"
    assert (
        pixels.encode_images(files(folder), device="auto").device.type == "cuda" if torch.cuda.is_available() else True
    )


@pytest.mark.parametrize(("told", "says"), [(True, "encoding pictures"), ("my album", "my album")])
def test_a_progress_bar_counts_pictures(
    pixels: Matcher, folder: Path, monkeypatch: pytest.MonkeyPatch, told: Any, says: str
) -> None:
    seen: list[tuple[str, Any, float]] = []
    advance = progress.Progress.advance

    def watched(bar: progress.Progress, task: Any, by: float = 1) -> None:
        advance(bar, task, by)
        shown = bar.tasks[task]
        seen.append((shown.description, shown.total, shown.completed))

    monkeypatch.setattr(progress.Progress, "advance", watched)
    pixels.encode_images(files(folder), batch_size=2, progress=told)
    pixels.encode_images(iter(files(folder)), batch_size=2, progress=told)
    assert seen == [(says, 3, 2), (says, 3, 3), (says, None, 2), (says, None, 3)]
    seen.clear()
    pixels.encode_images(files(folder))
    assert not seen


def test_ranking_goes_both_ways_and_over_what_is_kept(pixels: Matcher, folder: Path) -> None:
    paths = files(folder)
    scores = pixels.similarity(paths, SENTENCES)
    images, texts = pixels.encode_images(paths), pixels.encode_texts(SENTENCES)
    torch.testing.assert_close(pixels.similarity(images, texts), scores)
    torch.testing.assert_close(pixels.similarity(images, SENTENCES), scores)
    torch.testing.assert_close(pixels.similarity(str(paths[1]), SENTENCES[2]), scores[1:2, 2:])
    pictures, sentences = scores[:, 2], scores[1]
    for ranked, expected in (
        (pixels.rank(SENTENCES[2], paths), pictures),
        (pixels.rank(SENTENCES[2], [str(path) for path in paths]), pictures),
        (pixels.rank(SENTENCES[2], images), pictures),
        (pixels.rank(texts[2], images, kind="sentence"), pictures),
        (pixels.rank(paths[1], SENTENCES), sentences),
        (pixels.rank(Image.open(paths[1]), texts), sentences),
        (pixels.rank(np.asarray(Image.open(paths[1])), SENTENCES), sentences),
        (pixels.rank(images[1], iter(SENTENCES), kind="picture"), sentences),
        (pixels.rank(str(paths[1]), SENTENCES, kind="picture"), sentences),
    ):
        assert [place for place, _ in ranked] == expected.argsort(descending=True).tolist()
        np.testing.assert_allclose([score for _, score in ranked], expected.sort(descending=True).values, atol=1e-6)
    assert len(pixels.rank(SENTENCES[0], images, top=2)) == 2


def test_of_equal_scores_the_earlier_comes_first(pixels: Matcher, folder: Path) -> None:
    ranked = pixels.rank(files(folder)[0], ["two boat"] * 40, top=40)
    assert len({score for _, score in ranked}) == 1
    assert [place for place, _ in ranked] == list(range(40))


def test_a_files_name_is_no_sentence(pixels: Matcher, folder: Path) -> None:
    with pytest.raises(DiptychError, match="is a file, and text is a sentence; give a picture as a Path"):
        pixels.rank(str(folder / "dog.png"), SENTENCES)


def test_a_matcher_is_loaded_where_it_shall_compute(tmp_path: Path) -> None:
    saved = tiny.save_vse(tmp_path / "model")
    assert Matcher.from_pretrained(saved, device="cpu").device.type == "cpu"
    with pytest.raises(DiptychError, match="device: 'nowhere' cannot be used"):
        Matcher.from_pretrained(saved, device="nowhere")
