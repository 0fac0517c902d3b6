"""Axes of charts: round ticks, and where a value lies between the ends."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

TINY = 1e-30


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows with its unit, its ends, its ticks, and whether equal steps are equal factors."""

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies, 0 at the low end and 1 at the high end."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def axis(
    label: str,
    values: Iterable[float],
    *,
    low: float | None = None,
    high: float | None = None,
    whole: bool = False,
    log: bool = False,
    count: int = 5,
) -> Axis:
    """An axis that holds the values; `low` and `high` fix its ends, `whole` keeps ticks to whole numbers.

    `log` is for values above 0 alone.
    """
    known = [v for v in values if math.isfinite(v)] or [0.0]
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    if log:
        return _log_axis(label, bottom, top)
    if top - bottom <= max(1e-9 * max(abs(top), abs(bottom)), TINY):  # one value, as far as people can see
        room = 0.1 * abs(bottom) if abs(bottom) > TINY else 1.0
        bottom, top = (bottom if low is not None else bottom - room), bottom + room
    step = nice_step((top - bottom) / count)
    if whole:
        step = max(1.0, float(round(step)))
    first, last = math.floor(bottom / step + 1e-9), math.ceil(top / step - 1e-9)
    last = max(last, first + 1)  # of whole steps, values that are all but whole would get none
    bottom = bottom if low is not None else first * step
    top = top if high is not None else last * step
    ticks = [float(f"{i * step:.12g}") for i in range(first, last + 1)]
    slack = 1e-9 * (top - bottom)
    return Axis(label, bottom, top, tuple(t for t in ticks if bottom - slack <= t <= top + slack))


def _log_axis(label: str, bottom: float, top: float) -> Axis:
    first, last = math.floor(math.log10(bottom) + 1e-9), math.ceil(math.log10(top) - 1e-9)
    last = max(last, first + 1)
    every = max(1, math.ceil((last - first) / 6))
    ticks = tuple(10.0**power for power in range(first, last + 1, every))
    return Axis(label, 10.0**first, 10.0**last, ticks, log=True)


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5 or 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))


def number(value: float, digits: int = 6) -> str:
    """A number for people: up to six digits, thousands apart, small ones as powers of ten."""
    if not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) < 1e-4:
        mantissa, power = f"{value:.{max(0, digits - 4)}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(power)}"
    return f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
