"""Dates in filters: when a picture was taken, and where it does not say so, when its file was changed."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from diptych.common.errors import DiptychError
from diptych.data.photo import TAKEN
from diptych.search.stores.store import Condition, Value

T = TypeVar("T", int, str)
_LAST = (1 << 63) - 1
_DATES = ("%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def date_span(value: Value) -> tuple[int, int]:
    """A date as nanoseconds since 1970, from its start to just after its end, in local time: a year, month, day, ..."""
    if not isinstance(value, str):
        start = int(value * 1_000_000_000)
        return start, start + 1
    try:
        span = tuple(moment.timestamp() for moment in _moments(value))
    except (ValueError, OverflowError):
        raise DiptychError(f"date {value!r}: expected a year from 2 to 9998") from None
    # No file is older or younger than stores can count.
    start, end = (min(max(round(seconds) * 1_000_000_000, -_LAST), _LAST) for seconds in span)
    return start, end


def taken_span(value: Value) -> tuple[str, str]:
    """The same as a picture's `taken` is written, whose order is that of time: no zone, as the camera's clock has none.

    >>> taken_span("2019-07")
    ('2019-07-01T00:00:00', '2019-08-01T00:00:00')
    """
    if isinstance(value, str):
        date_span(value)  # an error where there is no such year
        start, end = _moments(value)
    else:
        try:
            start = datetime.fromtimestamp(value)
        except (ValueError, OverflowError, OSError):
            start = datetime(9998, 1, 1) if value > 0 else datetime(2, 1, 1)
        end = start + timedelta(seconds=1)
    return tuple(moment.isoformat(timespec="seconds") for moment in (start, end))  # type: ignore[return-value]


def taken_value(value: Value) -> str | None:
    """A date that people wrote as the column `taken` keeps it; None where it is none.

    >>> taken_value("2019-07-04 12:30"), taken_value("last summer")
    ('2019-07-04T12:30:00', None)
    """
    try:
        return taken_span(value)[0] if isinstance(value, str) else None
    except DiptychError:
        return None


def date_fits(condition: Condition, changed: int, metadata: Mapping[str, Value]) -> bool:
    """Whether the date of an entry fits."""
    taken = metadata.get(TAKEN)
    if isinstance(taken, str):
        return _fits(condition.operator, taken, *taken_span(condition.value))
    return _fits(condition.operator, changed, *date_span(condition.value))


def date_sql(condition: Condition) -> tuple[str, list[Value]]:
    """An SQL expression over a row of `entries`, and its parameters."""
    comparison = _COMPARISONS[condition.operator]
    spans = taken_span(condition.value), date_span(condition.value)
    values: list[Value] = []
    for start, end in spans:
        values += [{"start": start, "end": end}[which] for which in comparison.values]
    own = "SELECT 1 FROM metadata WHERE entry = id AND name = 'taken' AND typeof(value) = 'text'"
    return (
        f"CASE WHEN EXISTS ({own}) THEN EXISTS ({own} AND {comparison.sql.format('value')}) "
        f"ELSE {comparison.sql.format('changed')} END",
        values,
    )


def date_milvus(condition: Condition) -> str:
    """A Milvus expression."""
    comparison = _COMPARISONS[condition.operator]
    written = []
    for field, (start, end) in (
        (f'metadata["{TAKEN}"]', taken_span(condition.value)),
        ("changed", date_span(condition.value)),
    ):
        quotes = '"' if isinstance(start, str) else ""
        parts = [f"{quotes}{ {'start': start, 'end': end}[which] }{quotes}" for which in comparison.values]
        written.append(comparison.milvus.format(field, *parts))
    there = f'(metadata["{TAKEN}"] >= "")'  # any text; servers of 2.3 take no "not exists"
    return f"({there} and ({written[0]})) or ((not {there}) and ({written[1]}))"


class _Comparison:
    """An operator between a moment and a span of time: which ends of the span, and how they are compared."""

    def __init__(self, *parts: tuple[str, str], negated: bool = False) -> None:
        self.values = [which for _, which in parts]
        sql = " AND ".join(f"{{0}} {sign} ?" for sign, _ in parts)
        milvus = " and ".join(f"{{0}} {sign} {{{place}}}" for place, (sign, _) in enumerate(parts, 1))
        self.sql = f"NOT ({sql})" if negated else f"({sql})"
        self.milvus = f"not ({milvus})" if negated else milvus


_COMPARISONS = {
    "=": _Comparison((">=", "start"), ("<", "end")),
    "!=": _Comparison((">=", "start"), ("<", "end"), negated=True),
    "<": _Comparison(("<", "start")),
    "<=": _Comparison(("<", "end")),
    ">": _Comparison((">=", "end")),
    ">=": _Comparison((">=", "start")),
}


def _fits(operator: str, moment: T, start: T, end: T) -> bool:
    return {
        "=": start <= moment < end,
        "!=": not start <= moment < end,
        "<": moment < start,
        "<=": moment < end,
        ">": moment >= end,
        ">=": moment >= start,
    }[operator]


def _moments(text: str) -> tuple[datetime, datetime]:
    """The start of a date as people write it, and the moment after its end."""
    for form in _DATES:
        try:
            start = datetime.strptime(text.strip().replace(" ", "T"), form)
        except ValueError:
            continue
        return start, _after(start, form)
    raise DiptychError(f"date {text!r}: expected 2024, 2024-05, 2024-05-01, 2024-05-01T12:30 or seconds since 1970")


def _after(start: datetime, form: str) -> datetime:
    if form == "%Y":
        return start.replace(year=start.year + 1)
    if form == "%Y-%m":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + {"%d": timedelta(days=1), "%M": timedelta(minutes=1), "%S": timedelta(seconds=1)}[form[-2:]]
