import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.common.model_place import canonical_name
from diptych.encoders.images import FeatureConfig
from diptych.matchers.base import Matcher
from diptych.matchers.hubs import EXTRA, Bank, HubConfig
from diptych.matchers.set_similarity import all_cosines, smooth_chamfer
from diptych.search.models.embedder import Embedder, LocalsSource, load_embedder, same_probe
from tests.encoders.pictures import picture
from tests.matchers.cases import CASES
from tests.search import tiny

TEXTS = ["two dog", "a", "a small cat sits left of the big blue boat"]


def test_vectors_are_the_matchers_own(vse_folder: str) -> None:
    embedder = load_embedder(vse_folder, "cpu")
    matcher = Matcher.from_pretrained(vse_folder)
    images = [picture(seed=i) for i in range(5)]
    pictures, texts = embedder.embed_pictures(images, batch_size=2), embedder.embed_texts(TEXTS)
    assert (pictures.shape, texts.shape) == ((5, 1, 8), (3, 1, 8))
    np.testing.assert_allclose(np.linalg.norm(pictures, axis=-1), 1, atol=1e-6)
    np.testing.assert_allclose(pictures[:, 0] @ texts[:, 0].T, matcher.similarity(images, TEXTS), atol=1e-5)
    assert embedder.embed_texts([]).shape == (0, 1, 8)


def test_unlevelled_queries_are_the_model_s(vse_folder: str) -> None:
    matcher = Matcher.from_pretrained(vse_folder)
    texts = ["a red dog", "two boats", "the cat"]
    plain = Embedder(matcher, vse_folder).embed_texts(texts)
    vectors = matcher.encode_texts(texts).vectors[:, 0]
    matcher.level([Bank(vectors, vectors)], HubConfig(prototypes=2, dim=4))
    levelled = Embedder(matcher, vse_folder)
    found = levelled.embed_texts(texts)
    assert found.shape[-1] == plain.shape[-1] + EXTRA == levelled.layout.dim
    np.testing.assert_allclose(levelled.unlevelled(found)[..., :-EXTRA], plain, atol=1e-6)
    assert not levelled.unlevelled(found)[..., -EXTRA:].any()


def test_sets_of_vectors(dive_folder: str) -> None:
    embedder = load_embedder(dive_folder, "cpu")
    assert (embedder.layout.set_size, embedder.layout.dim, embedder.layout.alpha) == (2, 8, 16.0)
    images = [picture(seed=i) for i in range(3)]
    pictures, texts = (torch.from_numpy(v) for v in (embedder.embed_pictures(images), embedder.embed_texts(TEXTS)))
    scores = smooth_chamfer(all_cosines(pictures, texts), 16.0)
    torch.testing.assert_close(
        scores, Matcher.from_pretrained(dive_folder).similarity(images, TEXTS), atol=1e-4, rtol=0
    )


def test_local_features_come_along(vse_folder: str, dive_folder: str) -> None:
    image = picture(seed=1)
    for folder in (vse_folder, dive_folder):
        embedder = load_embedder(folder, "cpu")
        assert embedder.locals_source is not None
        found = embedder.embed_pixels([embedder.prepare(image)], [image.size], locals=True).locals
        assert found is not None
        assert (found[0].shape, found[0].dtype) == ((16, 12), np.float16)
        expected = embedder.locals_source.load().eval().regions([image])[0].vectors
        np.testing.assert_allclose(found[0], expected, atol=2e-2)
        assert embedder.embed_pixels([embedder.prepare(image)], [image.size]).locals is None


def test_files_turned_by_exif(vse_folder: str, tmp_path: Path) -> None:
    embedder = load_embedder(vse_folder, "cpu")
    image = picture(40, 30, seed=2)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned a quarter clockwise when shown
    image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_allclose(
        embedder.embed_pictures([tmp_path / "turned.png"]), embedder.embed_pictures([image]), atol=1e-5
    )


def test_models_that_score_pairs_cannot_search() -> None:
    from tests.evaluation.tiny import matcher

    pairs = [name for name in CASES if name.startswith(("scan", "mmca")) and "alpha-0" not in name]
    for case in ("vse++-order", *pairs):
        if type(CASES[case].text).__name__ == "GRUConfig":
            with pytest.raises(DiptychError, match="it can re-rank"):
                Embedder(matcher(case), case)


def test_a_matcher_of_unknown_features_cannot_search() -> None:
    from tests.evaluation.tiny import matcher

    with pytest.raises(DiptychError, match="names no backbone"):
        Embedder(matcher("vse++"), "x")
    assert LocalsSource.of(FeatureConfig()) is None


def test_names(vse_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "best").symlink_to(vse_folder)
    assert load_embedder(run, "cpu").name == str(run / "best")
    assert LocalsSource(str(run / "best"), 32).same(LocalsSource(vse_folder, 32))
    assert not LocalsSource(vse_folder, 32).same(LocalsSource(vse_folder, 64))
    monkeypatch.chdir(tmp_path)
    assert canonical_name("run") == str(run / "best")
    assert canonical_name("default") == "default"
    monkeypatch.setattr("diptych.common.model_place.shipped_folder", lambda name: None)
    with pytest.raises(DiptychError, match="default: this installation"):
        load_embedder("default")
    with pytest.raises(DiptychError, match="device: 'nowhere' cannot be used"):
        load_embedder(vse_folder, "nowhere")
    with pytest.raises(DiptychError, match="no such folder or model"):
        load_embedder("./nothing")


def test_the_model_that_ships_is_found_by_name(vse_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shipped(name: str) -> Path | None:
        return Path(vse_folder) if name == "default" else None

    monkeypatch.setattr("diptych.common.model_place.shipped_folder", shipped)
    embedder = load_embedder("default", "cpu")
    assert (embedder.name, embedder.layout.dim) == ("default", 8)
    assert embedder.locals_source == LocalsSource("default", 32)


def test_a_probe_tells_models_apart(vse_folder: str, tmp_path: Path) -> None:
    one, again = load_embedder(vse_folder, "cpu"), load_embedder(vse_folder, "cpu")
    clip = load_embedder(tiny.save_clip(tmp_path / "clip"), "cpu")
    for pictures in (True, False):
        assert same_probe(one.probe(pictures), again.probe(pictures))
        assert not same_probe(one.probe(pictures), clip.probe(pictures))


def test_threads_share_one(vse_folder: str) -> None:
    embedder = load_embedder(vse_folder, "cpu")
    expected = embedder.embed_texts(TEXTS)
    wrong: list[object] = []

    def work() -> None:
        try:
            for _ in range(10):
                np.testing.assert_allclose(embedder.embed_texts(TEXTS), expected, atol=1e-6)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
