"""Bounds of a configuration's numbers: what is outside of them is refused in one sentence that names the field."""

import math
from typing import Any


def check_bounds(
    config: Any, *names: str, low: float = -math.inf, high: float = math.inf, above: float | None = None
) -> None:
    """See that fields of a dataclass lie in [low, high], or in (above, high]; none at all is left as it is.

    A field may hold a tuple, or a table by name: then each of its numbers is looked at. No number may be infinite.
    """
    for name in names:
        for key, value in _numbers(name, getattr(config, name)):
            inside = low <= value <= high and (above is None or value > above)
            if not inside or not -math.inf < value < math.inf:
                raise ValueError(f"{key}: expected {_expected(low, high, above)}, got {value!r}")


def check_share(config: Any, *names: str) -> None:
    """See that fields lie in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"{name}: expected a number from 0 to below 1, got {value!r}")


def _numbers(name: str, value: Any) -> list[tuple[str, float]]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(f"{name}.{key}", number) for key, number in value.items()]
    if isinstance(value, tuple):
        return [(f"{name}[{i}]", number) for i, number in enumerate(value)]
    return [(name, value)]


def _expected(low: float, high: float, above: float | None) -> str:
    if above is not None:
        lowest = f"a number above {above:g}"
        return lowest if high == math.inf else f"{lowest}, at most {high:g}"
    if high != math.inf:
        return f"a number from {low:g} to {high:g}"
    return "a finite number" if low == -math.inf else f"at least {low:g}"
