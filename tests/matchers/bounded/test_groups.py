import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.matchers.bounded.groups import WORTHWHILE, like_lengths


@given(st.lists(st.integers(1, 60), max_size=200), st.integers(1, 50))
def test_every_item_is_in_one_group_of_like_length(lengths: list[int], most: int) -> None:
    groups = like_lengths(torch.tensor(lengths, dtype=torch.int64), lambda _: most)
    assert sorted(int(i) for g in groups for i in g) == list(range(len(lengths)))
    for group in groups:
        assert 1 <= len(group) <= most
        inside = [lengths[int(i)] for i in group]
        assert len(group) <= WORTHWHILE or min(inside) >= max(inside) - max(1, max(inside) // 8)


def test_the_longest_come_first_and_the_limit_may_depend_on_length() -> None:
    groups = like_lengths(torch.tensor([3, 9, 3, 9, 9, 3]), lambda longest: 18 // longest)
    assert [g.tolist() for g in groups] == [[1, 3], [0, 4], [2, 5]]


def test_items_of_one_length_are_one_group_in_order() -> None:
    assert [g.tolist() for g in like_lengths(torch.tensor([4, 4, 4]))] == [[0, 1, 2]]
