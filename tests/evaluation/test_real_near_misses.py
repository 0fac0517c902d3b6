from dataclasses import replace

import pytest

from diptych.common.errors import DiptychError
from diptych.data.statements import PictureStatement
from diptych.evaluation.foil_figures import foil_pairs
from diptych.evaluation.real_near_misses import foil_table, real_near_misses, statement_table
from diptych.evaluation.tables import render
from tests.evaluation import tiny

COLLECTION = tiny.collection(9)
NUMBERED = replace(COLLECTION, items=[replace(item, id=f"{i:012d}") for i, item in enumerate(COLLECTION.items)])
STATEMENTS = [
    PictureStatement(1, "the dog left of the cat", True, "left of"),
    PictureStatement(1, "the dog on the boat", False, "on"),
    PictureStatement(2, "a cat on a boat", True, "on"),
    PictureStatement(99, "a boat on a boat", True, "on"),
]


@pytest.mark.parametrize("case", ["vse++", "camp"])
def test_any_matcher_is_judged_by_its_own_scores(case: str) -> None:
    matcher = tiny.matcher(case)
    result = real_near_misses(matcher, NUMBERED, STATEMENTS, batch_size=4)
    pairs = foil_pairs(NUMBERED)
    assert result.foils["all"].right.count == len(pairs)
    hits = []
    for pair in pairs:
        item = NUMBERED.items[pair.picture]
        assert NUMBERED.features is not None
        assert item.row is not None
        scores = matcher.similarity([NUMBERED.features[item.row]], [pair.sentence, pair.foil.text])[0]
        hits.append(float(scores[0]) > float(scores[1]) + 1e-6)
    assert result.foils["all"].right.value == pytest.approx(100 * sum(hits) / len(hits), abs=200 / len(hits))
    assert result.statements["all"].statements == 3
    flat = result.flat()
    assert flat["foil/all"] == result.foils["all"].right.value
    assert flat["statement/all/statements"] == 3


def test_what_cannot_be_judged_is_said() -> None:
    matcher = tiny.matcher()
    with pytest.raises(DiptychError, match="none of 1 statements"):
        real_near_misses(matcher, NUMBERED, STATEMENTS[-1:])
    bare = replace(NUMBERED, items=[replace(item, sentences=()) for item in NUMBERED.items])
    with pytest.raises(DiptychError, match="no caption"):
        real_near_misses(matcher, bare)
    # Pictures without captions will do for statements.
    assert not real_near_misses(matcher, bare, STATEMENTS).foils


def test_tables_fit_a_hundred_columns() -> None:
    result = real_near_misses(tiny.matcher(), NUMBERED, STATEMENTS)
    both = {"vse-infinity-flickr8k": result, "camp": result}
    for table in (foil_table(both, "captions with one word changed"), statement_table(both, "statements")):
        text = render(table)
        assert max(map(len, text.splitlines())) <= 100, text
        assert text.count("camp") >= 2
