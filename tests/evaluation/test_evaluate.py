from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, sentences
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.ensemble import EnsembleSource
from diptych.evaluation.evaluate import (
    evaluate_embeddings,
    evaluate_ensemble,
    evaluate_kept,
    evaluate_matcher,
    evaluate_scores,
)
from diptych.evaluation.sources import EmbeddingSource, MatrixSource
from diptych.scoring.blocks import score_all
from tests.evaluation import tiny


@pytest.mark.parametrize("case", ["vse++", "vse++-order", "scan-t2i-mean", "camp", "mmca-gru", "dive"])
def test_a_matcher_is_evaluated_as_its_score_matrix(case: str) -> None:
    matcher, collection = tiny.matcher(case), tiny.collection()
    images, texts = encode_collection(matcher, collection, batch_size=4)
    scores = score_all(matcher, images, texts)
    expected = evaluate_scores(scores, collection.captions()[1])
    for memory in (None, 40_000):
        found = evaluate_matcher(matcher, collection, batch_size=4, memory=memory)
        assert {key: found.figures[key] for key in expected.figures} == pytest.approx(expected.figures)
    assert found.per_query["image_ids"].tolist() == [item.id for item in collection.items]


@pytest.mark.parametrize("case", ["vse++", "scan-t2i-mean", "camp"])
@pytest.mark.parametrize("memory", [None, 40_000])
def test_scores_of_half_precision_are_ranked_as_they_are_and_told(case: str, memory: int | None) -> None:
    matcher, collection = tiny.matcher(case), tiny.collection()
    scores = score_all(matcher, *encode_collection(matcher, collection), dtype=torch.bfloat16)
    expected = evaluate_scores(scores, collection.captions()[1]).figures
    found = evaluate_matcher(matcher, collection, memory=memory, dtype=torch.bfloat16)
    assert {key: found.figures[key] for key in expected} == pytest.approx(expected)
    assert found.notes == ("scores were computed in bfloat16",)


def test_encoding_follows_the_collection_s_order() -> None:
    matcher, collection = tiny.matcher(), tiny.collection()
    images, texts = encode_collection(matcher, collection, batch_size=2)
    assert collection.features is not None
    third = matcher.encode_images([collection.features[3]])
    assert torch.allclose(images[[3]].vectors, third.vectors, atol=1e-6)
    alone = matcher.encode_texts([collection.items[1].sentences[2].text])
    assert torch.allclose(texts[[7]].vectors, alone.vectors, atol=1e-6)


def test_camp_reports_its_gates_and_others_report_nothing_more() -> None:
    camp = evaluate_matcher(tiny.matcher("camp"), tiny.collection(), "flickr30k").figures
    assert 0 < camp["flickr30k/gate/positive"] < 1
    assert 0 < camp["flickr30k/gate/negative"] < 1
    plain = evaluate_matcher(tiny.matcher(), tiny.collection(), "flickr30k").figures
    assert not [key for key in plain if "gate" in key]


def test_a_picture_without_what_the_matcher_needs_is_named() -> None:
    bare = Collection("bare", [Item("p0", sentences(["a dog"], "p0"))])
    with pytest.raises(DiptychError, match="picture p0 comes without features"):
        evaluate_matcher(tiny.matcher(), bare)
    with pytest.raises(DiptychError, match="expected pictures with sentences"):
        evaluate_matcher(tiny.matcher(), Collection("empty", [Item("p0", ())]))


def test_embeddings_from_arrays_tensors_files_and_kept_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=(20, 8)).astype(np.float32)
    s = (v.repeat(5, 0) + rng.normal(size=(100, 8))).astype(np.float32)
    np.save(tmp_path / "v.npy", v)
    np.save(tmp_path / "s.npy", s)
    np.save(tmp_path / "repeated.npy", v.repeat(5, 0))
    normal = F.normalize(torch.from_numpy(v)), F.normalize(torch.from_numpy(s))
    expected = evaluate_scores(normal[0] @ normal[1].T, np.arange(100) // 5).figures
    for images, texts in [
        (v, s),
        (torch.from_numpy(v).double(), torch.from_numpy(s)),
        (tmp_path / "v.npy", str(tmp_path / "s.npy")),
        (tmp_path / "repeated.npy", tmp_path / "s.npy"),
    ]:
        assert evaluate_embeddings(images, texts).figures == expected
    dot = evaluate_embeddings(v, s, similarity="dot").figures
    assert dot == evaluate_scores(v @ s.T).figures
    assert dot != expected


def test_what_vse_keeps_is_a_pair_of_embeddings() -> None:
    matcher, collection = tiny.matcher(), tiny.collection()
    images, texts = encode_collection(matcher, collection)
    owners = collection.captions()[1]
    assert evaluate_embeddings(images, texts, owners).figures == evaluate_kept(matcher, images, texts, owners).figures


def test_wrong_embeddings_are_named(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"\(pictures, d\) and \(sentences, d\), got \(2, 3\) and \(4, 5\)"):
        evaluate_embeddings(np.zeros((2, 3)), np.zeros((4, 5)))
    with pytest.raises(DiptychError, match=r"nothing.npy: images: expected an .npy file"):
        evaluate_embeddings(tmp_path / "nothing.npy", np.zeros((4, 5)))
    with pytest.raises(DiptychError, match="5 sentences do not divide evenly among 2 pictures"):
        evaluate_embeddings(np.ones((2, 3)), np.ones((5, 3)))
    with pytest.raises(DiptychError, match="image 1 with sentence 0 is nan"):
        evaluate_embeddings(np.array([[1.0, 0], [np.nan, 0]]), np.ones((4, 2)))


def test_scores_from_a_file_and_a_list(tmp_path: Path) -> None:
    scores = np.array([[3, 2, 1, 0], [0, 1, 2, 3]])
    np.save(tmp_path / "scores.npy", scores)
    assert evaluate_scores(tmp_path / "scores.npy").figures == evaluate_scores(scores.tolist()).figures
    with pytest.raises(DiptychError, match=r"expected a matrix \(pictures, sentences\), got shape \(4,\)"):
        evaluate_scores([0.0, 1.0, 2.0, 3.0])


def test_an_ensemble_is_the_mean_of_scores() -> None:
    matchers, collection = [tiny.matcher(seed=1), tiny.matcher("camp", seed=2)], tiny.collection()
    mean = torch.stack([score_all(m, *encode_collection(m, collection)) for m in matchers]).mean(0)
    found = evaluate_ensemble(matchers, collection)
    assert found.figures == pytest.approx(evaluate_scores(mean, collection.captions()[1]).figures)


def test_an_ensemble_s_parts_and_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diptych.evaluation.sources.STRIP", 3)
    rng = np.random.default_rng(0)
    a, v, s = rng.normal(size=(7, 14)), torch.randn(7, 4), torch.randn(14, 4)
    both = EnsembleSource([MatrixSource(a), EmbeddingSource(v, s)])
    rows, columns = np.array([5, 0, 2]), np.array([13, 1, 7, 4])
    mean = (a + (v @ s.T).numpy()) / 2
    found = torch.cat([block.scores for block in both.part(rows, columns).blocks()]).numpy()
    assert found == pytest.approx(mean[rows][:, columns], abs=1e-6)
    with pytest.raises(DiptychError, match="different numbers of pairs"):
        EnsembleSource([MatrixSource(a), MatrixSource(a[:3])])
