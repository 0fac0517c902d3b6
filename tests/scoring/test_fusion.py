import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.scoring.fusion import fuse


def slow_fuse(first: list[float], second: list[float], fusion: str) -> list[float]:
    if fusion == "replace":
        return second
    if fusion == "sum":
        a, b = np.array(first), np.array(second)
        spread = [x.std() if x.std() > 1e-12 else 1 for x in (a, b)]
        return list((a - a.mean()) / spread[0] + (b - b.mean()) / spread[1])
    ranks = [sorted(range(len(x)), key=lambda i, x=x: (-x[i], i)) for x in (first, second)]  # type: ignore[misc]
    return [sum(1 / (61 + order.index(i)) for order in ranks) for i in range(len(first))]


@given(
    st.lists(st.tuples(st.floats(-1, 1, width=32), st.floats(0, 1, width=32)), min_size=1, max_size=9),
    st.sampled_from(["replace", "sum", "rrf"]),
)
def test_fusion_is_the_definition(pairs: list[tuple[float, float]], fusion: str) -> None:
    first, second = (np.array(x) for x in zip(*pairs, strict=True))
    np.testing.assert_allclose(
        fuse(first, second, fusion),
        slow_fuse(list(first), list(second), fusion),
        atol=1e-6,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("fusion", ["replace", "sum", "rrf"])
def test_what_could_not_be_scored_comes_last(fusion: str) -> None:
    fused = fuse(np.array([0.9, 0.8, 0.7, 0.6]), np.array([-np.inf, 0.2, -np.inf, 0.9]), fusion)  # type: ignore[arg-type]
    assert np.argsort(-fused).tolist()[2:] == [0, 2]
    assert fuse(np.array([0.1, 0.3]), np.array([-np.inf, -np.inf]), fusion).tolist() == [0.1, 0.3]  # type: ignore[arg-type]


@given(st.integers(1, 4), st.integers(1, 6), st.sampled_from(["replace", "sum", "rrf"]), st.randoms())
def test_many_queries_at_once_are_each_on_their_own(rows: int, count: int, fusion: str, random: object) -> None:
    draw = np.random.default_rng(random.randrange(10**6))  # type: ignore[attr-defined]
    first, second = draw.normal(size=(2, rows, count))
    second[draw.random((rows, count)) < 0.3] = -np.inf
    each = [fuse(a, b, fusion) for a, b in zip(first, second, strict=True)]  # type: ignore[arg-type]
    np.testing.assert_allclose(fuse(first, second, fusion), np.stack(each))  # type: ignore[arg-type]
