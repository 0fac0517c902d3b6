"""What is confused with what: near misses by attribute, and by the value that was mistaken for another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diptych.common.config import read_json
from diptych.data.scenes import COLOURS, RELATIONS, SHAPES, SIZES, TEXTURES, NearMissPair, Statement
from diptych.data.scenes.features import RegionKind
from diptych.data.scenes.scene import COUNTS
from diptych.data.scenes.write import SETTINGS
from diptych.evaluation.near_misses import near_miss_hits
from diptych.matchers.base import Matcher
from diptych.training.data import DataConfig, ScenesConfig

PAIRS = 600
VALUES: dict[str, tuple[str, ...]] = {
    "shape": SHAPES,
    "colour": COLOURS,
    "size": SIZES,
    "texture": TEXTURES,
    "count": tuple(str(count) for count in COUNTS),
    "relation": RELATIONS,
}


@dataclass(frozen=True, eq=False)
class Confusion:
    """One attribute: rows are what is true, columns what it was set against.

    asked: (values, values) int64, questions; wrong: those that the matcher got wrong; ties are wrong
    by_sentence, by_picture: (right, asked): choosing between two sentences, and between two pictures
    """

    attribute: str
    values: tuple[str, ...]
    asked: np.ndarray
    wrong: np.ndarray
    by_sentence: tuple[int, int]
    by_picture: tuple[int, int]

    @property
    def right(self) -> float:
        """Percent of all questions that were answered rightly."""
        return 100 * (1 - float(self.wrong.sum()) / float(self.asked.sum()))


def drawn_seed(data: DataConfig) -> int | None:
    """The seed of the drawn scenes that a run was trained on; none where it was trained on something else."""
    if isinstance(data, ScenesConfig):
        return data.seed
    settings = Path(data.paths[0]) / SETTINGS
    if len(data.paths) > 1 or not settings.is_file():
        return None
    seed = read_json(settings).get("seed")
    return seed if isinstance(seed, int) else None


def value_of(statement: Statement, attribute: str) -> str:
    """The value of the attribute in which the statements of a near miss differ."""
    if attribute == "relation":
        return statement.claims[0].relation
    return str(getattr(statement.phrases[0], attribute))


def confusions_of(matcher: Matcher, pairs: Sequence[NearMissPair], regions: RegionKind = "boxes") -> list[Confusion]:
    """Ask two questions of every pair: which sentence fits the scene, and which scene fits the sentence."""
    sentence, picture = near_miss_hits(matcher, pairs, regions)
    confusions = []
    for attribute, values in VALUES.items():
        chosen = [i for i, pair in enumerate(pairs) if pair.attribute == attribute]
        if not chosen:
            continue
        asked, wrong = (np.zeros((len(values), len(values)), dtype=np.int64) for _ in range(2))
        for i in chosen:
            cell = tuple(values.index(value_of(c.statement, attribute)) for c in (pairs[i].sentence, pairs[i].wrong))
            asked[cell] += 2
            wrong[cell] += int(not sentence[i]) + int(not picture[i])
        confusions.append(
            Confusion(
                attribute,
                values,
                asked,
                wrong,
                (int(sentence[chosen].sum()), len(chosen)),
                (int(picture[chosen].sum()), len(chosen)),
            )
        )
    return confusions
