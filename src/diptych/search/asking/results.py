"""What a search gives."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from diptych.data.photo import TAKEN
from diptych.data.video import clock
from diptych.search.stores.keys import file_of, second_of
from diptych.search.stores.store import Kind, Value

# From this confidence on, a result is said to match: of queries for what is not there, so many find nothing as sure.
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
    written: what is written in the picture, where the query's words stand in it; empty where they do not
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
    written: str = ""

    @property
    def path(self) -> str:
        """The file that it came from, with the part where it is one of several."""
        return self.key

    @property
    def file(self) -> str:
        """The file that it came from."""
        return file_of(self.key)

    @property
    def second(self) -> float | None:
        """The second of a video that it is a frame of; None for all else."""
        return second_of(self.key)

    @property
    def shown(self) -> str:
        """Its path as people read it: of a frame, `clip.mp4 at 0:42`."""
        return self.key if self.second is None else f"{self.file} at {clock(self.second)}"

    @property
    def date(self) -> str | None:
        """When it was taken, or where it does not say, when its file was changed; `dated` says which."""
        taken = self.metadata.get(TAKEN)
        if isinstance(taken, str):
            return taken
        return datetime.fromtimestamp(self.changed / 1e9).isoformat(timespec="seconds") if self.changed else None

    @property
    def dated(self) -> Literal["taken", "file"]:
        """What `date` is: when the picture was taken, or when its file was changed."""
        return "taken" if isinstance(self.metadata.get(TAKEN), str) else "file"

    def _repr_html_(self) -> str:
        from diptych.search.asking.notebook import results_html

        return results_html([self], None)

    def to_json(self) -> dict[str, Any]:
        """Plain data; what is not there is left out."""
        shown: dict[str, Any] = {
            "path": self.path if self.second is None else self.file,
            "score": round(self.score, 6),
            "confidence": None if self.confidence is None else round(self.confidence, 4),
            "kind": self.kind if self.second is None else "video",
        }
        if self.second is not None:
            shown["second"] = self.second
        if self.kind == "picture" and self.date is not None:
            shown |= {"date": self.date, "dated": self.dated}
        if self.text:
            shown["text"] = self.text
        if self.written:
            shown["written"] = self.written
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
    """The results of one query, best first, or as they were asked to be sorted.

    timings: seconds of each stage; of a batch, those of the whole batch
    exact: whether every vector was looked at; recall: of an approximate search, its measured recall
    """

    results: list[Result]
    timings: dict[str, float]
    exact: bool = True
    recall: float | None = None

    @property
    def matches(self) -> bool | None:
        """Whether anything here matches, or is written there; None where confidences were not asked for."""
        known = [r.confidence for r in self.results if r.confidence is not None]
        if not self.results or any(r.written for r in self.results):
            return bool(self.results)
        return max(known) >= MATCHES if known else None

    def _repr_html_(self) -> str:
        from diptych.search.asking.notebook import results_html

        return results_html(self.results, self.matches)

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
