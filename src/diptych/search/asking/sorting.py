"""Results in another order than best first: by date, by path or by any column."""

from collections.abc import Sequence
from dataclasses import dataclass

from diptych.common.errors import DiptychError, nearest
from diptych.data.photo import COLUMNS
from diptych.search.asking.results import Result
from diptych.search.stores.store import Value

# What every result has.
ALWAYS = ("score", "confidence", "date", "path")


@dataclass(frozen=True)
class Sort:
    """What results are sorted by; equal ones stay best first, and those without the column come last.

    field: score, confidence, date (taken, or else the file's), path, or a column
    descending: largest, latest or last first
    """

    field: str
    descending: bool = False


def parse_sort(text: str) -> Sort:
    """A sort as people write it: `date`, oldest first, or `-date`, newest first.

    >>> parse_sort("-width")
    Sort(field='width', descending=True)
    """
    field = text.strip().removeprefix("-").strip()
    if not field:
        raise DiptychError(f"sort {text!r}: expected date, path, score, confidence or a column, with - for descending")
    return Sort(field, text.strip().startswith("-"))


def sorted_results(results: Sequence[Result], sort: Sort) -> list[Result]:
    """The results in the order of a column; an error where none of them has it, and pictures have none of this name."""
    values = [_value(result, sort.field) for result in results]
    if results and all(value is None for value in values) and sort.field not in (*ALWAYS, *COLUMNS):
        known = sorted({*ALWAYS, *(name for result in results for name in result.metadata)})
        raise DiptychError(f"sort {sort.field!r}: no result has such a column; {nearest(sort.field, known)}")
    places = [place for place, value in enumerate(values) if value is not None]
    # Numbers apart from text; also with `reverse`, equal ones stay as they were.
    places.sort(key=lambda place: (isinstance(values[place], str), values[place]), reverse=sort.descending)
    return [results[place] for place in places] + [r for r, value in zip(results, values, strict=True) if value is None]


def _value(result: Result, field: str) -> Value | None:
    if field == "score":
        return result.score
    if field == "confidence":
        return result.confidence
    if field == "path":
        return result.path
    if field == "date":
        return result.date
    return result.metadata.get(field)
