"""Chance that is the same everywhere: only `random()` is used, whose sequence Python promises never to change."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A stream of chance, fixed by its key; two different keys give unrelated streams."""

    def __init__(self, *key: int | str) -> None:
        self._next = Random("/".join(map(str, key))).random

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._next() < probability

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return int(self._next() * count)

    def between(self, low: float, high: float) -> float:
        """A number from low to high."""
        return low + (high - low) * self._next()

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices, each as likely as the others."""
        return choices[int(self._next() * len(choices))]

    def weighted(self, choices: Sequence[tuple[T, float]]) -> T:
        """One of the choices, as likely as the weight beside it."""
        point = self._next() * sum(weight for _, weight in choices)
        for choice, weight in choices:
            point -= weight
            if point < 0:
                return choice
        return choices[-1][0]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result
