"""What a search gives."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from diptych.search.stores.keys import file_of
from diptych.search.stores.store import Kind, Value

# From this confidence on, a result is said to match: so many of unrelated queries find nothing that stands out so far.
MATCHES = 0.9


@dataclass(frozen=True)
class Result:
    """One entry that was found.

    key: a picture's path, or FILE#PART
    score: what the results are ordered by: cosine, smooth-Chamfer, or what re-ranking made of it
    confidence: how sure it is that this is no chance match, 0 to 1; None where it was not asked for
    text: the sentence; empty for a picture
    changed: when its file was changed, in nanoseconds since 1970
    retrieval, rerank: the two stages' own scores, where there were two
    duplicates: keys of other results that are nearly the same, best first
    """

    key: str
    kind: Kind
    score: float
    confidence: float | None = None
    text: str = ""
    changed: int = 0
    metadata: dict[str, Value] = field(default_factory=dict)
    retrieval: float | None = None
    rerank: float | None = None
    duplicates: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The file that it came from, with the part where it is one of several."""
        return self.key

    @property
    def file(self) -> str:
        """The file that it came from."""
        return file_of(self.key)

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is not there is left out."""
        shown: dict[str, Any] = {"path": self.path, "score": round(self.score, 6)}
        shown["confidence"] = None if self.confidence is None else round(self.confidence, 4)
        shown["kind"] = self.kind
        if self.text:
            shown["text"] = self.text
        for name in ("retrieval", "rerank"):
            value = getattr(self, name)
            if value is not None:
                shown[name] = round(value, 6)
        if self.metadata:
            shown["metadata"] = self.metadata
        if self.duplicates:
            shown["duplicates"] = list(self.duplicates)
        return shown


@dataclass(frozen=True)
class RankedResults:
    """The results of one query, best first.

    timings: seconds of each stage; of a batch, those of the whole batch
    exact: whether every vector was looked at; recall: of an approximate search, its measured recall
    """

    results: list[Result]
    timings: dict[str, float]
    exact: bool = True
    recall: float | None = None

    @property
    def matches(self) -> bool | None:
        """Whether anything here matches; None where confidences were not asked for."""
        known = [r.confidence for r in self.results if r.confidence is not None]
        if not self.results:
            return False
        return max(known) >= MATCHES if known else None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        shown: dict[str, Any] = {
            "results": [result.to_json() for result in self.results],
            "timings": {name: round(seconds, 6) for name, seconds in self.timings.items()},
            "matches": self.matches,
            "exact": self.exact,
        }
        return shown if self.recall is None else {**shown, "recall": self.recall}


class Clock:
    """Seconds that the stages took."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time within to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.perf_counter() - started

    @property
    def timings(self) -> dict[str, float]:
        """The stages in their order, and the total."""
        return {**self._stages, "total": time.perf_counter() - self._started}
