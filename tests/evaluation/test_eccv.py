import io
import json
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.evaluation.eccv import annotations, coco_number, gallery, query_figures, split_captions, split_ids
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.sources import Strip

pytest.importorskip("eccv_caption")


class Scores:
    """Random scores of all 5,000 pictures with all 25,000 captions, right pairs a little higher, strip by strip."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from eccv_caption import Metrics

            self.package = Metrics()
        self.captions = self.package.coco_ids.tolist()
        self.images = list(dict.fromkeys(self.package.coco_gts["t2i"][c][0] for c in self.captions))
        row = {image: i for i, image in enumerate(self.images)}
        self.owners = np.array([row[self.package.coco_gts["t2i"][c][0]] for c in self.captions])
        rng = np.random.default_rng(0)
        self.v = rng.normal(size=(5000, 12)).astype(np.float32)
        self.s = (self.v[self.owners] + 0.7 * rng.normal(size=(25000, 12))).astype(np.float32)

    def __iter__(self) -> Iterator[Strip]:
        for start in range(0, 5000, 500):
            scores = torch.from_numpy(self.v[start : start + 500] @ self.s.T)
            yield Strip(slice(start, start + 500), torch.arange(25000), scores)

    def retrieved(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """The best of each query, as the package wants them; no picture has more than 48 right answers."""
        captions, images = np.array(self.captions), np.array(self.images)
        i2t = {}
        best, who = np.empty((25000, 0), dtype=np.float32), np.empty((25000, 0), dtype=np.int64)
        for strip in self:
            scores = strip.scores.numpy()
            for i, top in zip(range(strip.images.start, strip.images.stop), first(scores, 50), strict=True):
                i2t[self.images[i]] = captions[top].tolist()
            top = first(np.ascontiguousarray(scores.T), 20)
            best = np.concatenate([best, np.take_along_axis(scores.T, top, 1)], 1)
            who = np.concatenate([who, top + strip.images.start], 1)
        order = np.argsort(-best, axis=1)[:, :20]
        t2i = images[np.take_along_axis(who, order, 1)]
        return i2t, {caption: row.tolist() for caption, row in zip(self.captions, t2i, strict=True)}


def first(scores: np.ndarray, count: int) -> np.ndarray:
    """Positions of each row's greatest scores, the greatest first."""
    top = np.argpartition(scores, -count, axis=1)[:, -count:]
    return np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), axis=1), 1)


@pytest.fixture(scope="module")
def scores() -> Scores:
    return Scores()


@pytest.fixture(scope="module")
def theirs(scores: Scores) -> dict[str, dict[str, float]]:
    i2t, t2i = scores.retrieved()
    with redirect_stderr(io.StringIO()):
        wanted = ["cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1"]
        return scores.package.compute_all_metrics(i2t, t2i, target_metrics=wanted)


def ours(scores: Scores, protocol: str) -> dict[str, float]:
    images = [f"COCO_val2014_{image:012d}.jpg" for image in scores.images]
    return evaluate_scores(scores, scores.owners, protocol, images, [str(c) for c in scores.captions]).figures


def test_eccv_caption_equals_the_package(scores: Scores, theirs: dict[str, dict[str, float]]) -> None:
    figures = ours(scores, "eccv")
    names = {"map@r": "eccv_map_at_r", "r-precision": "eccv_rprecision", "r@1": "eccv_r1"}
    assert set(figures) == {f"eccv/{d}/{name}" for d in ("i2t", "t2i") for name in names}
    for direction in ("i2t", "t2i"):
        for name, key in names.items():
            assert figures[f"eccv/{direction}/{name}"] / 100 == pytest.approx(theirs[key][direction], abs=1e-9)
            assert 0.02 < theirs[key][direction] < 0.98


def test_cxc_equals_the_package(scores: Scores, theirs: dict[str, dict[str, float]]) -> None:
    figures = ours(scores, "cxc")
    for direction in ("i2t", "t2i"):
        for k in (1, 5, 10):
            assert figures[f"cxc/{direction}/r@{k}"] / 100 == pytest.approx(theirs[f"cxc_r{k}"][direction], abs=1e-9)


def test_query_figures_by_hand() -> None:
    # R = 3, right answers at ranks 1, 3 and 7: mAP@R = (1/1 + 2/3) / 3; R = 2, one found at rank 2, one nowhere.
    found = query_figures(
        np.array([4, 4, 4, 9]), np.array([0, 1, 2, 0]), np.array([1.0, 3.0, 7.0, 2.0]), np.array([3, 2])
    )
    assert found["map@r"] == pytest.approx([100 * (1 + 2 / 3) / 3, 100 * 0.5 / 2])
    assert found["r-precision"] == pytest.approx([100 * 2 / 3, 50])
    assert found["r@1"].tolist() == [100, 0]


def test_annotations_are_whole() -> None:
    images, captions = split_ids()
    assert (len(images), len(captions)) == (5000, 25000)
    assert (len(annotations("eccv")[0]), len(annotations("eccv")[1])) == (1261, 1332)
    assert annotations("eccv")[0].keys() <= images


def test_less_than_half_of_the_split_or_a_missing_caption_is_refused() -> None:
    images, captions = split_ids()
    most = [str(number) for number in sorted(images)[1:]]
    with pytest.raises(DiptychError, match="2501 of the 5,000 test pictures are not in the data"):
        gallery("cxc", most[2500:], [str(c) for c in captions])
    with pytest.raises(DiptychError, match=r"the first picture here has id 'a\.jpg#0'"):
        gallery("cxc", ["a.jpg#0"], [])
    with pytest.raises(DiptychError, match="comes twice"):
        gallery("eccv", [*most, most[0]], [])
    own = [str(caption) for picture in most for caption in split_captions()[int(picture)]]
    with pytest.raises(DiptychError, match="1 of the 24,995 test captions are not in the data"):
        gallery("eccv", most, own[:-1])


@pytest.mark.parametrize("protocol", ["eccv", "cxc"])
def test_of_a_part_of_the_split_only_what_is_there_is_asked_and_counted(protocol: str) -> None:
    rng = np.random.default_rng(1)
    chosen = rng.permutation(sorted(split_ids()[0]))[:2600].tolist()
    owned = [(i, caption) for i, picture in enumerate(chosen) for caption in split_captions()[picture]]
    captions = [caption for _, caption in owned]
    v = rng.normal(size=(2600, 6)).astype(np.float32)
    s = (v[[i for i, _ in owned]] + rng.normal(size=(len(owned), 6))).astype(np.float32)
    table = v @ s.T
    result = evaluate_scores(table, [i for i, _ in owned], protocol, list(map(str, chosen)), list(map(str, captions)))
    assert "took the 2,600 of 5,000 test pictures" in result.notes[0]
    row, column = ({number: i for i, number in enumerate(ids)} for ids in (chosen, captions))
    every = split_ids()
    for direction, scores, asked, mine, theirs, answers in (
        ("i2t", table, row, column, every[1], annotations(protocol)[0]),
        ("t2i", table.T, column, row, every[0], annotations(protocol)[1]),
    ):
        hits, precisions = [], []
        for query, right in answers.items():
            there = [mine[answer] for answer in right if answer in mine]
            if query not in asked or not there:
                continue
            order = np.argsort(-scores[asked[query]])
            hits.append(100.0 * (order[0] in there))
            size = len([answer for answer in right if answer in mine or answer not in theirs])
            precisions.append(100.0 * len(set(order[:size]) & set(there)) / size)
        assert result[f"{direction}/r@1"] == pytest.approx(np.mean(hits))
        if protocol == "eccv":
            assert result[f"{direction}/r-precision"] == pytest.approx(np.mean(precisions))


def test_captions_that_do_not_count_are_left_out() -> None:
    images, captions = split_ids()
    found = gallery("eccv", [str(i) for i in images], ["144675", *map(str, captions)])
    assert len(found[1]) == 25000
    assert 144675 not in found[1]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("391895", 391895),
        ("COCO_val2014_000000391895.jpg", 391895),
        ("val2014/000000391895.jpg", 391895),
        ("x#1", None),
    ],
)
def test_coco_numbers(text: str, number: int | None) -> None:
    assert coco_number(text) == number


def test_ties_give_ranges_to_eccv_caption(scores: Scores) -> None:
    class Flat(Scores):
        def __init__(self, like: Scores) -> None:
            self.__dict__ = like.__dict__

        def __iter__(self) -> Iterator[Strip]:
            for start in range(0, 5000, 500):
                yield Strip(slice(start, start + 500), torch.arange(25000), torch.zeros(500, 25000))

    ids = [str(i) for i in scores.images], [str(c) for c in scores.captions]
    found = evaluate_scores(Flat(scores), scores.owners, "eccv", *ids)
    low, high = found.ranges["eccv/i2t/r@1"]
    assert (low, high) == (0.0, 100.0)
    assert found["i2t/map@r"] < 1
    assert json.dumps(found.tree())
