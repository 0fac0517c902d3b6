import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diptych.search.asking.duplicates import closeness, group_near


def sets(n: int, k: int, seed: int) -> np.ndarray:
    v = np.random.default_rng(seed).normal(size=(n, k, 3)).astype(np.float32)
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def test_near_ones_join_the_best() -> None:
    a, b = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
    near = np.array([[0.995, 0.0999]], np.float32)
    assert group_near(np.stack([a, b, near, b, a]), 0.98) == [[0, 2, 4], [1, 3]]
    assert group_near(np.zeros((0, 1, 2), np.float32)) == []


@given(st.integers(0, 12), st.integers(1, 3), st.floats(-0.5, 1), st.integers(0, 99))
def test_groups_are_as_a_loop_makes_them(n: int, k: int, near: float, seed: int) -> None:
    vectors = sets(n, k, seed)
    expected: list[list[int]] = []
    for row in range(n):
        for group in expected:
            cosines = vectors[row] @ vectors[group[0]].T
            if (cosines.max(1).mean() + cosines.max(0).mean()) / 2 >= near:
                group.append(row)
                break
        else:
            expected.append([row])
    assert group_near(vectors, near) == expected


def test_a_set_is_as_close_as_can_be_to_itself_in_any_order() -> None:
    one = sets(1, 4, 0)[0]
    np.testing.assert_allclose(closeness(one, np.stack([one, one[::-1]])), 1, atol=1e-6)
