from dataclasses import replace

import pytest

from diptych.evaluation.evaluate import evaluate_matcher
from diptych.training.start import build_for
from diptych.training.validation import validate
from tests.training import toy


def test_ranks_are_counted_within_each_set_and_their_means_choose() -> None:
    matcher = build_for(toy.recipe(), toy.splits())
    whole = toy.collection()
    sets = [replace(whole, name="first", items=whole.items[:7]), replace(whole, name="second", items=whole.items[7:20])]
    figures = validate(matcher, sets)
    alone = [evaluate_matcher(matcher, part).figures for part in sets]
    for part, expected in zip(sets, alone, strict=True):
        for key, value in expected.items():
            assert figures[f"{part.name}/{key}"] == value
    assert figures["rsum"] == pytest.approx((alone[0]["rsum"] + alone[1]["rsum"]) / 2)
    assert figures["i2t/r@1"] == pytest.approx((alone[0]["i2t/r@1"] + alone[1]["i2t/r@1"]) / 2)


def test_one_set_keeps_the_usual_names() -> None:
    matcher = build_for(toy.recipe(), toy.splits())
    part = toy.splits().validation
    assert validate(matcher, [part]) == evaluate_matcher(matcher, part).figures
