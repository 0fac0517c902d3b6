from dataclasses import replace

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.report import subject as subject_module
from diptych.report.subject import affordable, draw, look_at
from tests.evaluation import tiny


def test_a_draw_is_in_order_and_repeats_itself() -> None:
    first = draw(100, 10, 3)
    assert list(first) == sorted(set(first)) == list(draw(100, 10, 3))
    assert list(first) != list(draw(100, 10, 4))
    assert list(draw(5, 10, 0)) == [0, 1, 2, 3, 4]


def test_a_part_is_drawn_where_there_is_too_much() -> None:
    found = look_at(tiny.matcher(), tiny.collection(9), "test", most=4)
    assert (len(found.collection), found.whole, found.sampled) == (4, 9, True)
    assert len(found.captions) == len(found.owners) == len(found.texts) == 20
    kept = {item.id: item for item in tiny.collection(9).items}
    for position, text in zip(found.owners, found.captions, strict=True):
        assert text in [s.text for s in kept[found.collection.items[position].id].sentences]


def test_dear_pairs_make_the_draw_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher, collection = tiny.matcher("camp"), tiny.collection(9)
    assert affordable(matcher, collection) == 1000
    floats = matcher.pair_floats(4, 9)
    monkeypatch.setitem(subject_module.WORK, "cpu", floats * 5 * 30**2)
    assert 30 <= affordable(matcher, collection) <= 45  # the longest of the first sentences may be shorter than 9


def test_pictures_without_sentences_are_not_looked_at() -> None:
    collection = tiny.collection(4)
    items = [replace(collection.items[0], sentences=()), *collection.items[1:]]
    found = look_at(tiny.matcher(), replace(collection, items=items))
    assert found.whole == len(found.collection) == 3
    np.testing.assert_array_equal(np.unique(found.owners), [0, 1, 2])
    with pytest.raises(DiptychError, match="no picture with a sentence"):
        look_at(tiny.matcher(), replace(collection, items=items[:1]))
