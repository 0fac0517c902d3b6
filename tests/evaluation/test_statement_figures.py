import numpy as np
import pytest

from diptych.data.collection import Collection, Item
from diptych.data.statements import PictureStatement
from diptych.evaluation.pair_scores import Scores
from diptych.evaluation.statement_figures import PlacedStatement, _best_threshold, place_statements, statement_figures


def some(pictures: int = 12, seed: int = 0) -> tuple[list[PlacedStatement], Scores, Scores]:
    """Statements with scores drawn at random, true ones a little higher."""
    rng = np.random.default_rng(seed)
    placed, own = [], []
    for picture in range(pictures):
        scores: dict[str, float] = {}
        for relation in rng.choice(["under", "facing", "beyond", "left of"], rng.integers(1, 5), replace=False):
            true = bool(rng.random() < 0.5)
            statement = PictureStatement(picture, f"A is {relation} B.", true, str(relation))
            placed.append(PlacedStatement(picture, statement))
            scores[statement.text] = float(rng.normal() + true)
            if statement.opposite is not None:
                scores[statement.opposite] = float(rng.normal())
        own.append(scores)
    return placed, own, [{text: -score for text, score in scores.items()} for scores in own]


def test_statements_are_joined_by_cocos_number() -> None:
    items = [Item(id, ()) for id in ("000000000042", "COCO_val2014_000000000007.jpg", "else")]
    told = [PictureStatement(id, "A is on B.", True, "on") for id in (7, 42, 3)]
    assert [(one.picture, one.statement.picture) for one in place_statements(Collection("c", items), told)] == [
        (1, 7),
        (0, 42),
    ]


def test_figures_are_those_of_a_loop() -> None:
    placed, own, other = some()
    figures = statement_figures(placed, own, other)
    assert list(figures) == ["all", "projective", "orientation", "other"]
    for group, found in figures.items():
        chosen = [one for one in placed if group in ("all", one.statement.group)]
        value = {one: own[one.picture][one.statement.text] for one in chosen}
        true = [one for one in chosen if one.statement.true]
        false = [one for one in chosen if not one.statement.true]
        assert found.statements == len(chosen)
        assert found.commoner == pytest.approx(100 * max(len(true), len(false)) / len(chosen))
        assert found.auc is not None
        assert found.auc.value == pytest.approx(100 * np.mean([value[a] > value[b] for a in true for b in false]))
        same = [value[a] > value[b] for a in true for b in false if a.picture == b.picture]
        assert (found.same_picture is None) == (not same)
        if found.same_picture is not None:
            assert found.same_picture.value == pytest.approx(100 * np.mean(same))
        against = [(one, one.statement.opposite) for one in true if one.statement.opposite is not None]
        assert (found.opposite is None) == (not against)
        if found.opposite is not None:
            assert found.unseen is not None
            wins = [value[one] > own[one.picture][wrong] for one, wrong in against if wrong is not None]
            assert found.opposite.value == pytest.approx(100 * np.mean(wins))
            assert found.unseen.value == pytest.approx(100 - found.opposite.value)


def test_the_threshold_is_that_of_the_other_half() -> None:
    def accuracy(*told: tuple[bool, float]) -> float:
        placed = [PlacedStatement(p, PictureStatement(p, "it", true, "at")) for p, (true, _) in enumerate(told)]
        scores = [{"it": score} for _, score in told]
        found = statement_figures(placed, scores, scores)["all"].accuracy
        assert found is not None
        return found.value

    # Each of two pictures could be told by a threshold of its own, and neither by that of the other.
    assert accuracy((True, 0.0), (False, 1.0)) == 0.0
    assert accuracy(*[(True, 1.0), (False, 0.0)] * 20) == 100.0


def test_the_best_threshold_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        scores, true = rng.integers(0, 9, 15).astype(float), rng.random(15) < 0.5
        best = max(np.mean((scores > cut) == true) for cut in np.arange(-1, 10) + 0.5)
        assert np.mean((scores > _best_threshold(scores, true)) == true) == best


def test_one_picture_alone_has_no_other_half() -> None:
    placed = [PlacedStatement(0, PictureStatement(0, "A is on B.", True, "on"))]
    found = statement_figures(placed, [{"A is on B.": 0.5, "A is under B.": 0.1}], [{}])["all"]
    assert found.auc is None
    assert found.unseen is None
    assert found.opposite is not None
    assert found.opposite.value == 100.0
    assert found.flat("statement/all")["statement/all/opposite"] == 100.0
