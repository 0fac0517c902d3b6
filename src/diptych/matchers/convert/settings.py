"""The authors' settings: what a checkpoint holds of them, and what is given beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from diptych.common.errors import DiptychError, nearest

T = TypeVar("T")


class Settings:
    """The authors' `opt`. What is given wins over what the file holds; what is asked for is remembered for the card."""

    def __init__(self, path: Path, held: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        self.path = path
        self._held = held
        self._given = given
        self._asked: set[str] = set()
        self.used: dict[str, str] = {}

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting, or the default where neither the file nor the caller has it."""
        self._asked.add(name)
        for values, origin in ((self._given, "given"), (self._held, "from the file")):
            if values.get(name) is not None:
                self.used[name] = f"{values[name]!r}, {origin}"
                return values[name]
        if default is not None:
            self.used[name] = f"{default!r}, assumed"
        return default

    def number(self, name: str, default: float) -> float:
        """A setting that is a number above 0."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise DiptychError(f"opt.{name}: expected a number above 0, got {value!r}", where=self.path)
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise DiptychError(f"opt.{name}: expected true or false, got {value!r}", where=self.path)
        return value

    def choice(self, name: str, choices: Mapping[str, T], default: str | None = None) -> T:
        """A setting that names one of several ways, as ours."""
        value = self.get(name, default)
        listed = ", ".join(map(str, choices))
        if value is None:
            raise DiptychError(
                f"opt.{name} is not in the file; give it with --option {name}=…, one of {listed}", where=self.path
            )
        if value not in choices:
            raise DiptychError(f"opt.{name}: {value!r} cannot be converted; expected one of {listed}", where=self.path)
        return choices[value]

    def expect(self, name: str, value: Any) -> None:
        """A setting that must be so, if it is said at all: a matcher computes nothing else."""
        self._asked.add(name)
        said = self._given.get(name, self._held.get(name))
        if said is not None and said != value:
            raise DiptychError(
                f"opt.{name} is {said!r}: scores of such a model cannot be reproduced; expected {value!r}",
                where=self.path,
            )

    def check_given(self) -> None:
        """Refuse a given setting that nothing asked for."""
        for name in self._given.keys() - self._asked:
            raise DiptychError(f"--option {name}: no setting of this model; {nearest(name, sorted(self._asked))}")


def parse_options(options: list[str]) -> dict[str, Any]:
    """`name=value` words; numbers and true or false become what they are."""
    values: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name:
            raise DiptychError(f"--option {option}: expected name=value")
        values[name] = _value(text)
    return values


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
