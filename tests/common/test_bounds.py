import math
from dataclasses import dataclass, field

import pytest

from diptych.common.bounds import check_bounds, check_share


@dataclass
class Numbers:
    count: float | None = 1
    several: tuple[float, ...] = ()
    named: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize("value", [1, 2, 3])
def test_numbers_within_their_bounds_pass_with_the_bounds_themselves(value: float) -> None:
    check_bounds(Numbers(value, (value,), {"a": value}), "count", "several", "named", low=1, high=3)


def test_none_is_no_number() -> None:
    check_bounds(Numbers(None), "count", low=1)
    check_share(Numbers(None), "count")


@pytest.mark.parametrize(
    ("numbers", "bounds", "sentence"),
    [
        (Numbers(0), {"low": 1}, "count: expected at least 1, got 0"),
        (Numbers(4), {"low": 1, "high": 3}, "count: expected a number from 1 to 3, got 4"),
        (Numbers(0.0), {"above": 0}, "count: expected a number above 0, got 0.0"),
        (Numbers(9.0), {"above": 0, "high": 3}, "count: expected a number above 0, at most 3, got 9.0"),
        (Numbers(math.nan), {"low": 1}, "count: expected at least 1, got nan"),
        (Numbers(math.inf), {"low": 1}, "count: expected at least 1, got inf"),
        (Numbers(-math.inf), {}, "count: expected a finite number, got -inf"),
        (Numbers(several=(1, 0)), {"low": 1}, "several[1]: expected at least 1, got 0"),
        (Numbers(named={"a": 1, "b.c": 0}), {"low": 1}, "named.b.c: expected at least 1, got 0"),
    ],
)
def test_a_number_outside_is_told(numbers: Numbers, bounds: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        check_bounds(numbers, "count", "several", "named", **bounds)
    assert str(error.value) == sentence


@pytest.mark.parametrize("value", [-0.1, 1, 2, math.nan])
def test_a_share_lies_below_one(value: float) -> None:
    check_share(Numbers(0), "count")
    check_share(Numbers(0.999), "count")
    with pytest.raises(ValueError, match="count: expected a number from 0 to below 1, got"):
        check_share(Numbers(value), "count")
