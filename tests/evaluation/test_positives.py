import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.positives import Positives, even_owners


def test_pairs_are_sorted_and_counted_once() -> None:
    right = Positives.from_pairs([2, 0, 2, 2], [1, 3, 0, 1], (3, 4))
    assert list(zip(right.images.tolist(), right.texts.tolist(), strict=True)) == [(0, 3), (2, 0), (2, 1)]


def test_owners_may_be_ragged_and_in_any_order() -> None:
    right = Positives.from_owners([1, 0, 1, 1], 3)
    assert right.images.tolist() == [0, 1, 1, 1]
    assert right.texts.tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ([0, 3], "sentence 1 belongs to picture 3; expected positions 0 to 2"),
        ([0, -1], "sentence 1 belongs to picture -1"),
        ([], "expected the picture of each sentence"),
        ([0.5], "whole numbers"),
    ],
)
def test_wrong_owners_are_named(owners: list[float], message: str) -> None:
    with pytest.raises(DiptychError, match=message):
        Positives.from_owners(owners, 3)


def test_wrong_pairs_are_named() -> None:
    with pytest.raises(DiptychError, match="sentence 4 does not exist"):
        Positives.from_pairs([0], [4], (1, 4))
    with pytest.raises(DiptychError, match="at least one"):
        Positives.from_pairs([], [], (1, 4))


def test_even_owners() -> None:
    assert np.array_equal(even_owners(2, 6), [0, 0, 0, 1, 1, 1])
    with pytest.raises(DiptychError, match="7 sentences do not divide evenly among 2"):
        even_owners(2, 7)
