"""What a sweep varies: a recipe's key over a range or a choice, as it is written on the command line."""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from diptych.common.errors import DiptychError

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?\s*({_NUMBER})\s*\.\.\s*({_NUMBER})")


@dataclass(frozen=True)
class RangeAxis:
    """Numbers from low to high, both included; whole ones where both ends are; evenly in their logarithm with `log`."""

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def ends(self) -> list[str]:
        """What a recipe must take for the range to make sense."""
        return [self._text(self.low), self._text(self.high)]

    def suggest(self, trial: Any) -> str:
        """A trial's own value, as an override says it."""
        if self.whole:
            return str(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log))
        return self._text(trial.suggest_float(self.key, self.low, self.high, log=self.log))

    def shown(self, value: Any) -> str:
        """A value for people."""
        return str(value) if self.whole else f"{value:.4g}"

    def _text(self, value: float) -> str:
        return str(int(value)) if self.whole else repr(float(value))


@dataclass(frozen=True)
class ChoiceAxis:
    """One of several values, each as an override says it."""

    key: str
    values: tuple[str, ...]

    def ends(self) -> list[str]:
        """All of them."""
        return list(self.values)

    def suggest(self, trial: Any) -> str:
        """A trial's own value."""
        return str(trial.suggest_categorical(self.key, self.values))

    def shown(self, value: Any) -> str:
        """A value for people."""
        return str(value)


Axis = RangeAxis | ChoiceAxis


def parse_axis(text: str) -> Axis:
    """`KEY=log:1e-5..1e-3`, `KEY=0.1..0.3`, `KEY=2..8` (whole numbers), or `KEY=a,b,c`.

    >>> parse_axis("training.optimiser.lr=log:1e-5..1e-3")
    RangeAxis(key='training.optimiser.lr', low=1e-05, high=0.001, log=True, whole=False)
    >>> parse_axis("loss.negatives=hardest,all")
    ChoiceAxis(key='loss.negatives', values=('hardest', 'all'))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip().replace("-", "_"), value.strip()
    if not equals or not key or not value:
        raise DiptychError(f"--over: {text!r} is not possible; expected KEY=LOW..HIGH, KEY=log:LOW..HIGH or KEY=A,B,C")
    found = _RANGE.fullmatch(value)
    if found is None:
        return ChoiceAxis(key, _choices(text, value))
    log, *ends = found.groups()
    low, high = map(float, ends)
    if not low < high or (log and low <= 0):
        raise DiptychError(f"--over: {text!r}: expected {'0 < LOW < HIGH' if log else 'LOW < HIGH'}")
    return RangeAxis(key, low, high, log is not None, all(re.fullmatch(r"[-+]?\d+", end) for end in ends))


def _choices(text: str, value: str) -> tuple[str, ...]:
    """The values between commas; those within brackets or quotes are a value's own."""
    try:
        read = tomllib.loads(f"values = [{value}]")["values"]
        parts = _split(value) if len(_split(value)) == len(read) else value.split(",")
    except tomllib.TOMLDecodeError:
        parts = value.split(",")
    values = tuple(part.strip() for part in parts if part.strip())
    if len(values) < 2 or len(set(values)) < len(values) or "log:" in value or ".." in value:
        raise DiptychError(f"--over: {text!r}: expected two different values or more, as A,B,C, or a range LOW..HIGH")
    return values


def _split(value: str) -> list[str]:
    parts, depth, quoted = [""], 0, ""
    for sign in value:
        if quoted:
            quoted = "" if sign == quoted else quoted
        elif sign in "\"'":
            quoted = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
