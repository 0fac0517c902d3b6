"""Statements on where things are: can a matcher tell the true ones from the false?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from diptych.data.collection import Collection
from diptych.data.statements import GROUPS, OTHER, PictureStatement
from diptych.evaluation.eccv import coco_number
from diptych.evaluation.pair_scores import Scores
from diptych.evaluation.shares import Share, clustered, share, weighted_auc


@dataclass(frozen=True)
class PlacedStatement:
    """A statement and the place of its picture in a collection."""

    picture: int
    statement: PictureStatement


@dataclass(frozen=True)
class StatementFigures:
    """All in percent; chance is 50, but for the accuracy, where it is the share of the commoner answer.

    auc: how often a true statement scores above a false one, over all pictures
    accuracy: with the threshold that is best on the other half of the pictures
    same_picture: the true one above the false one, of two on the same picture
    opposite: a true statement above the same with the opposite relation; unseen: the same beside another picture
    """

    statements: int
    pictures: int
    commoner: float
    auc: Share | None
    accuracy: Share | None
    same_picture: Share | None
    opposite: Share | None
    unseen: Share | None

    def flat(self, name: str) -> dict[str, float]:
        """For JSON, by name."""
        figures: dict[str, float] = {
            f"{name}/statements": self.statements,
            f"{name}/pictures": self.pictures,
            f"{name}/commoner": self.commoner,
        }
        for key in ("auc", "accuracy", "same_picture", "opposite", "unseen"):
            found: Share | None = getattr(self, key)
            if found is not None:
                figures |= {f"{name}/{key}": found.value, f"{name}/{key}/low": found.low}
                figures |= {f"{name}/{key}/high": found.high, f"{name}/{key}/pairs": found.count}
        return figures


def place_statements(collection: Collection, statements: Sequence[PictureStatement]) -> list[PlacedStatement]:
    """The statements on pictures that are there, joined by COCO's number."""
    places = {coco_number(item.id): place for place, item in enumerate(collection.items)}
    return [PlacedStatement(places[one.picture], one) for one in statements if one.picture in places]


def statement_figures(placed: Sequence[PlacedStatement], own: Scores, other: Scores) -> dict[str, StatementFigures]:
    """The figures of each group of relations, and of all."""
    scores = np.array([own[one.picture][one.statement.text] for one in placed])
    true = np.array([one.statement.true for one in placed])
    judged = _judged(scores, true, np.array([one.picture for one in placed]))
    figures = {}
    for group in ("all", *GROUPS, OTHER):
        rows = [row for row, one in enumerate(placed) if group in ("all", one.statement.group)]
        if rows:
            chosen = [placed[row] for row in rows]
            figures[group] = _figures(chosen, scores[rows], judged[rows] == true[rows], own, other)
    return figures


def _figures(
    placed: Sequence[PlacedStatement], scores: np.ndarray, hits: np.ndarray, own: Scores, other: Scores
) -> StatementFigures:
    true = np.array([one.statement.true for one in placed])
    pictures = np.array([one.picture for one in placed])
    return StatementFigures(
        statements=len(placed),
        pictures=len(np.unique(pictures)),
        commoner=100 * max(float(true.mean()), 1 - float(true.mean())),
        auc=clustered(lambda weights: weighted_auc(scores, true, weights), pictures),
        accuracy=share(hits, pictures),
        same_picture=_same_picture(placed, own),
        opposite=_opposite(placed, own),
        unseen=_opposite(placed, other),
    )


def _judged(scores: np.ndarray, true: np.ndarray, pictures: np.ndarray) -> np.ndarray:
    """Whether each statement is held to be true: it is above the threshold of the other half of the pictures."""
    units, place = np.unique(pictures, return_inverse=True)
    half = np.random.default_rng(0).permutation(len(units))[place] % 2 == 0
    judged = np.empty(len(scores), dtype=bool)
    for here in (half, ~half):
        judged[here] = scores[here] > _best_threshold(scores[~here], true[~here])
    return judged


def _best_threshold(scores: np.ndarray, true: np.ndarray) -> float:
    """Above it most are true, and below it most are false: the middle of two scores that follow each other."""
    if not len(scores):
        return 0.0
    values = np.unique(scores)
    cuts = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1] + 1]])
    found_true, found_false = np.sort(scores[true]), np.sort(scores[~true])
    right = len(found_true) - np.searchsorted(found_true, cuts, "right") + np.searchsorted(found_false, cuts, "right")
    return float(cuts[np.argmax(right)])


def _same_picture(placed: Sequence[PlacedStatement], scores: Scores) -> Share | None:
    said: dict[int, tuple[set[str], set[str]]] = {}
    for one in placed:
        said.setdefault(one.picture, (set(), set()))[one.statement.true].add(one.statement.text)
    pairs = [(picture, pair) for picture, both in said.items() for pair in product(sorted(both[1]), sorted(both[0]))]
    hits = [scores[picture][right] > scores[picture][wrong] for picture, (right, wrong) in pairs]
    return share(np.array(hits, dtype=bool), np.array([picture for picture, _ in pairs], dtype=np.int64))


def _opposite(placed: Sequence[PlacedStatement], scores: Scores) -> Share | None:
    pairs = [
        (one.picture, one.statement.text, one.statement.opposite)
        for one in placed
        if one.statement.true and one.statement.opposite is not None and scores[one.picture]
    ]
    hits = [scores[picture][right] > scores[picture][wrong] for picture, right, wrong in pairs if wrong is not None]
    return share(np.array(hits, dtype=bool), np.array([picture for picture, _, _ in pairs], dtype=np.int64))
