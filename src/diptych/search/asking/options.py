"""How to search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from diptych.common.errors import DiptychError
from diptych.search.asking.sorting import Sort, parse_sort
from diptych.search.stores.store import Condition, Kind

if TYPE_CHECKING:  # needs torch
    from diptych.search.asking.rerank import Rerank


class OptionsByName(TypedDict, total=False):
    """What may be said by name of a search, as `Options` has it."""

    kind: Kind
    where: Sequence[Condition]
    threshold: float | None
    least_confidence: float | None
    confidence: bool
    rerank: "Rerank | None"
    group: float | None
    language: str | None
    sort: Sort | str | None


@dataclass(frozen=True)
class Options:
    """How to search.

    top: most results
    kind: what is looked for
    where: filters, all of which must fit
    threshold: least score; least_confidence: least confidence
    confidence: whether confidences are worked out
    rerank: the second stage, or none
    group: near duplicates, this close, become one result; None leaves them apart
    language: of the query's sentences, such as `es`, where it is not what the model knows; Apertium translates them
    sort: the order of what was found; best first without it; text is read as `parse_sort` does
    """

    top: int = 10
    kind: Kind = "picture"
    where: Sequence[Condition] = ()
    threshold: float | None = None
    least_confidence: float | None = None
    confidence: bool = True
    rerank: "Rerank | None" = None
    group: float | None = None
    language: str | None = None
    sort: Sort | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.sort, str):
            object.__setattr__(self, "sort", parse_sort(self.sort))
        if self.top < 1:
            raise DiptychError(f"top: expected at least 1, got {self.top}")
        if self.group is not None and not 0 < self.group <= 1:
            raise DiptychError(f"group: expected a closeness above 0, at most 1, got {self.group}")
