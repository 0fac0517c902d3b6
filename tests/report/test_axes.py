import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from diptych.report.axes import axis, nice_step, number

finite = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=9), st.booleans())
@example([5.959195704336909e-21], True)
@example([3.0000000001], True)
def test_an_axis_holds_its_values_and_ticks(values: list[float], whole: bool) -> None:
    found = axis("x", values, whole=whole)
    assert found.low < found.high
    for value in (*values, *found.ticks):
        assert -1e-6 <= found.place(value) <= 1 + 1e-6
    assert 2 <= len(found.ticks) <= 13
    assert not whole or all(tick == int(tick) for tick in found.ticks)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_on_a_log_axis_equal_steps_are_equal_factors(values: list[float]) -> None:
    found = axis("x", values, log=True)
    for value in values:
        expected = math.log10(value / found.low) / math.log10(found.high / found.low)
        assert found.place(value) == pytest.approx(expected, abs=1e-9)
        assert -1e-9 <= found.place(value) <= 1 + 1e-9


def test_fixed_ends_stay() -> None:
    found = axis("recall", [3.0, 97.0], low=0.0, high=100.0)
    assert (found.low, found.high) == (0, 100)
    assert found.ticks == (0, 20, 40, 60, 80, 100)


@pytest.mark.parametrize(("rough", "step"), [(1.0, 1), (1.1, 2), (2.2, 2.5), (0.03, 0.05), (700, 1000)])
def test_steps_are_round(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1234567, "1,234,567"), (0.25, "0.25"), (0.0005, "0.0005"), (2.7e-9, "2.7e-9"), (float("nan"), "–")],
)
def test_numbers_for_people(value: float, shown: str) -> None:
    assert number(value) == shown
