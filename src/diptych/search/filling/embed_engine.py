"""What embeds the parts of a plan: an interface, and one process of its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from diptych.search.filling.embed_parts import PartDone, PartsEmbedder
from diptych.search.filling.embed_plan import PlanPart


@dataclass(frozen=True)
class Speed:
    """How fast it went, in entries a second: all of it, and the model alone on pictures that are decoded already."""

    rate: float
    model_rate: float | None

    @property
    def share(self) -> float | None:
        """What share of the model's own rate was reached."""
        return self.rate / self.model_rate if self.model_rate else None


class EmbedEngine(Protocol):
    """Embeds parts, in any order."""

    def embed(self, parts: Sequence[PlanPart], advance: Callable[[int], None]) -> Iterator[PartDone]:
        """Write parts; `advance` is told how many items were looked at since it was last called."""

    def speed(self) -> Speed:
        """How fast that was."""


class PlainEngine:
    """This process: threads read ahead of one model."""

    def __init__(self, embedder: PartsEmbedder) -> None:
        self._embedder = embedder
        self._items = 0
        self._seconds = 0.0

    def embed(self, parts: Sequence[PlanPart], advance: Callable[[int], None]) -> Iterator[PartDone]:
        """One part after the other."""
        started = time.perf_counter()
        for done in self._embedder.embed(parts, advance):
            self._items += done.entries + done.bad
            self._seconds = time.perf_counter() - started
            yield done

    def speed(self) -> Speed:
        """From the first item read to the last part written."""
        return Speed(self._items / max(self._seconds, 1e-9), self._embedder.model_rate())
