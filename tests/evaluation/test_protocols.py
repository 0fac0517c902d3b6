import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, sentences
from diptych.evaluation.figures import mean_figures, rank_figures
from diptych.evaluation.positives import Positives
from diptych.evaluation.protocols import evaluate_source, fit_collection
from diptych.evaluation.ranks import count_ranks
from diptych.evaluation.sources import MatrixSource
from tests.evaluation import naive


def scores_and_owners(images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ragged: between one and seven sentences a picture."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(images), rng.integers(1, 8, images))
    scores = rng.normal(size=(images, len(owners)))
    scores[owners, np.arange(len(owners))] += 1.5
    return scores, owners


def test_figures_from_ranks_by_hand() -> None:
    figures = rank_figures(np.array([1, 2, 6, 11]), np.array([1, 1, 5, 10]))
    assert figures == {
        "i2t/r@1": 25.0, "i2t/r@5": 50.0, "i2t/r@10": 75.0, "i2t/medr": 4.0, "i2t/meanr": 5.0,
        "t2i/r@1": 50.0, "t2i/r@5": 75.0, "t2i/r@10": 100.0, "t2i/medr": 3.0, "t2i/meanr": 4.25,
        "rsum": 375.0,
    }  # fmt: skip


def test_all_pairs_equals_the_field_s_definition() -> None:
    scores, owners = scores_and_owners(40)
    found = evaluate_source(MatrixSource(scores), owners)
    pairs = {(int(i), j) for j, i in enumerate(owners)}
    i2t = np.array([r[2] for r in naive.ranks(scores, pairs, 0)])
    t2i = np.array([r[2] for r in naive.ranks(scores, pairs, 1)])
    assert found.figures == rank_figures(i2t, t2i)
    assert found.ranges == {}
    assert found.figures["rsum"] == pytest.approx(sum(found[f"{d}/r@{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10)))


def test_the_protocol_stands_in_front_of_its_figures() -> None:
    scores, owners = scores_and_owners(10)
    found = evaluate_source(MatrixSource(scores), owners, "coco-5k")
    assert "coco-5k/t2i/r@5" in found.figures
    assert found["t2i/r@5"] == found["coco-5k/t2i/r@5"]
    with pytest.raises(DiptychError, match="did you mean"):
        found["t2i/r@6"]


def test_coco_1k_is_the_mean_over_folds_that_meet_only_their_own_sentences() -> None:
    scores, owners = scores_and_owners(30)
    found = evaluate_source(MatrixSource(scores), owners, "coco-1k", fold=10)
    folds = []
    for start in (0, 10, 20):
        columns = np.flatnonzero((owners >= start) & (owners < start + 10))
        part = MatrixSource(scores[start : start + 10][:, columns])
        i2t, t2i = count_ranks(part, Positives.from_owners(owners[columns] - start, 10))
        folds.append(rank_figures(i2t.mean, t2i.mean))
    expected = mean_figures(folds)
    assert {key.removeprefix("coco-1k/"): value for key, value in found.figures.items()} == pytest.approx(expected)
    assert found["rsum"] == pytest.approx(sum(expected[f"{d}/r@{k}"] for d in ("i2t", "t2i") for k in (1, 5, 10)))
    assert found.per_query["t2i/query"].tolist() == list(range(len(owners)))
    assert found.per_query["t2i/owner"].tolist() == owners.tolist()
    assert found.per_query["t2i/weight"].sum() == pytest.approx(1)


def test_coco_1k_takes_whole_folds_and_says_what_it_left_out() -> None:
    scores, owners = scores_and_owners(37)
    found = evaluate_source(MatrixSource(scores), owners, "coco-1k", fold=10)
    inside = owners < 30
    whole = evaluate_source(MatrixSource(scores[:30][:, inside]), owners[inside], "coco-1k", fold=10)
    assert found.figures == whole.figures
    assert found.per_query["t2i/owner"].tolist() == owners[inside].tolist()
    assert found.notes == ("coco-1k took 3 folds of 10 pictures: the last 7 of 37 pictures were left out",)
    assert whole.notes == ()


def test_coco_1k_refuses_what_does_not_fill_a_fold() -> None:
    scores, owners = scores_and_owners(30)
    with pytest.raises(DiptychError, match="30 pictures cannot be cut into folds of 1,000"):
        evaluate_source(MatrixSource(scores), owners, "coco-1k")


def test_ties_give_ranges() -> None:
    found = evaluate_source(MatrixSource(np.zeros((4, 8))), np.repeat(np.arange(4), 2))
    assert found.ranges["t2i/r@1"] == (0.0, 100.0)
    assert found.ranges["t2i/meanr"] == (1.0, 4.0)
    assert found["t2i/meanr"] == 2.5
    assert found["t2i/r@1"] == 0.0  # a model that tells nothing apart gets no credit


def test_a_picture_without_sentences_is_found_but_does_not_ask() -> None:
    scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.2, 0.9]])
    found = evaluate_source(MatrixSource(scores), np.array([0, 1]))
    assert found.per_query["i2t/query"].tolist() == [0, 1]
    assert found["t2i/meanr"] == 1.5


def test_wrong_input_is_named() -> None:
    source = MatrixSource(np.zeros((2, 4)))
    with pytest.raises(DiptychError, match="did you mean 'coco-1k'"):
        evaluate_source(source, np.zeros(4, int), "coco1k")
    with pytest.raises(DiptychError, match="one for each of 4 sentences, got 3"):
        evaluate_source(source, np.zeros(3, int))
    with pytest.raises(DiptychError, match="image_ids: expected 2, got 1"):
        evaluate_source(source, np.zeros(4, int), image_ids=["a"])
    with pytest.raises(DiptychError, match="eccv: needs image_ids"):
        evaluate_source(source, np.zeros(4, int), "eccv")


def test_the_field_takes_five_sentences_a_picture() -> None:
    items = [Item("a", sentences("abcdefg", "a")), Item("b", sentences("abc", "b"))]
    fitted, notes = fit_collection(Collection("c", items), "flickr30k")
    assert [len(item.sentences) for item in fitted.items] == [5, 3]
    assert "2 further ones" in notes[0]
    assert fit_collection(Collection("c", items), "all-pairs") == (Collection("c", items), [])
