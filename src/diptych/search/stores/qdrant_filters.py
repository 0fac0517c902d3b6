"""Filters as a Qdrant server knows them, with the meaning that they have everywhere."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from diptych.data.photo import TAKEN
from diptych.search.stores.conditions import pattern_prefix
from diptych.search.stores.dates import date_span, taken_span
from diptych.search.stores.qdrant_ids import point_id
from diptych.search.stores.store import WRITTEN, Condition, Value

# Beyond, whole numbers are no longer told apart by the server, which compares them as float64.
LARGEST = 1 << 53
SECOND = 1_000_000_000
FORM = "dddd-dd-ddTdd:dd:dd"


def filter_fields(key: str, kind: str, changed: int, metadata: Mapping[str, Value]) -> dict[str, Any]:
    """What filters ask for, as fields of a point.

    folders: all that the key begins with up to a "/", for the server knows no prefixes
    seconds, nanos: when the file changed, in two numbers, since the server compares them as float64
    taken: when the picture was taken, as a number in the order of the text
    text, number: the columns by what they hold, since text is never compared with numbers
    words: what is written in the picture
    """
    seconds, nanos = divmod(changed, SECOND)
    fields: dict[str, Any] = {
        "key": key,
        "kind": kind,
        "folders": [key[: i + 1] for i, character in enumerate(key) if character == "/"],
        "seconds": seconds,
        "nanos": nanos,
        "columns": list(metadata),
        "text": {_code(name): value for name, value in metadata.items() if isinstance(value, str)},
        "number": {_code(name): value for name, value in metadata.items() if not isinstance(value, str)},
    }
    if isinstance(taken := metadata.get(TAKEN), str):
        fields["taken"] = taken_number(taken)
    if isinstance(written := metadata.get(WRITTEN), str):
        fields["words"] = sorted(words_of(written))
    return fields


def words_of(text: str) -> set[str]:
    """The words of a text, in small letters and without accents, cut where a file's index cuts them."""
    plain = (c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))
    return set(re.findall(r"[^\W_]+", "".join(plain)))


def to_qdrant(where: Sequence[Condition]) -> tuple[Any, list[Condition]]:
    """A filter of the server, and the conditions that it cannot decide alone.

    The filter lets through at least whatever fits those too.
    """
    parts, rest = [], []
    for condition in where:
        part, decided = _part(condition)
        parts.append(part)
        if not decided:
            rest.append(condition)
    return every(*parts), rest


def every(*filters: Any) -> Any:
    """What fits all of the filters; those that are None have nothing to say."""
    from qdrant_client import grpc as wire

    return wire.Filter(must=[wire.Condition(filter=one) for one in filters if one is not None])


def has_ids(ids: Sequence[Any]) -> Any:
    """A filter for points by their ids."""
    from qdrant_client import grpc as wire

    return wire.Filter(must=[wire.Condition(has_id=wire.HasIdCondition(has_id=ids))])


def has_word(field: str, word: str) -> Any:
    """A filter for points in whose field a text stands, alone or among others."""
    from qdrant_client import grpc as wire

    match = wire.FieldCondition(key=field, match=wire.Match(keyword=word))
    return wire.Filter(must=[wire.Condition(field=match)])


def in_folder(prefix: str) -> Any | None:
    """A filter that lets through all keys with a prefix: those in the folder that it begins with, if there is one."""
    folder = prefix[: prefix.rfind("/") + 1]
    return has_word("folders", folder) if folder else None


def taken_number(text: str) -> int:
    """A number for any text that is to a moment's number as the text is to the moment's text: less, equal or more.

    >>> taken_number("2019-07-04T12:30:00") < taken_number("2019-07-04T12:30:00+01:00") < taken_number("2019-07-05")
    True
    >>> taken_number("2019-07-05") < taken_number("2019-07-05T00:00:00")
    True
    """
    digits = ""
    for place, wanted in enumerate(FORM):
        character = text[place : place + 1]
        if character == wanted or (wanted == "d" and character in set("0123456789")):
            digits += character if wanted == "d" else ""
            continue
        # All moments that begin so come after the text, or all before.
        after = character < ("0" if wanted == "d" else wanted)
        return 2 * int(digits.ljust(14, "0" if after else "9")) + (-1 if after else 1)
    return 2 * int(digits) + (1 if len(text) > len(FORM) else 0)


def column_paths(name: str) -> tuple[str, str]:
    """Where the server finds a column that holds text, and one that holds numbers."""
    return f'text."{_code(name)}"', f'number."{_code(name)}"'


def _code(name: str) -> str:
    """A column's name without the characters that mean something in a path."""
    return quote(name, safe=" ")


def _part(condition: Condition) -> tuple[Any | None, bool]:
    operator, value = condition.operator, condition.value
    if operator == "!=":
        same, decided = _part(Condition(condition.field, "=", value))
        return (_none_of(same), True) if decided else (None, False)
    if condition.field == "date":
        return _date(condition), True
    if condition.field == "kind":
        return has_word("kind", str(value)), True
    if condition.field == "path":
        return _path(operator, str(value))
    text, number = column_paths(condition.field)
    if isinstance(value, str) and operator == "=":
        return has_word(text, value), True
    if not isinstance(value, str) and abs(value) < LARGEST:
        return _range(number, operator, float(value)), True
    return _none_of(_is_empty(text if isinstance(value, str) else number)), False


def _path(operator: str, value: str) -> tuple[Any | None, bool]:
    if operator == "=":
        return has_ids([point_id(value)]), True
    if operator != "matches":
        return None, False
    prefix, rest = pattern_prefix(value)
    if not rest:
        return has_ids([point_id(prefix)]), True
    return in_folder(prefix), rest == ["*"] and (not prefix or prefix.endswith("/"))


def _date(condition: Condition) -> Any:
    """When it was taken, or where that is not known when its file changed."""
    taken = [taken_number(moment) for moment in taken_span(condition.value)]
    by_taken = _span(condition.operator, *(lambda sign, n=n: _range("taken", sign, n) for n in taken))
    changed = (lambda sign, n=n: _changed(sign, n) for n in date_span(condition.value))
    return _any_of(by_taken, every(_is_empty("taken"), _span(condition.operator, *changed)))


def _span(operator: str, start: Any, end: Any) -> Any:
    """Before, in or after a span of time, from comparisons with its start and with the moment after its end."""
    return {
        "=": lambda: every(start(">="), end("<")),
        "<": lambda: start("<"),
        "<=": lambda: end("<"),
        ">": lambda: end(">="),
        ">=": lambda: start(">="),
    }[operator]()


def _changed(sign: str, moment: int) -> Any:
    """Compare, with < or >=, the moment when a file changed."""
    seconds, nanos = divmod(moment, SECOND)
    strict = "<" if sign == "<" else ">"
    same = every(_range("seconds", "=", seconds), _range("nanos", sign, nanos))
    return _any_of(_range("seconds", strict, seconds), same)


def _range(field: str, operator: str, value: float) -> Any:
    from qdrant_client import grpc as wire

    ends = {"=": ("gte", "lte"), "<": ("lt",), "<=": ("lte",), ">": ("gt",), ">=": ("gte",)}[operator]
    condition = wire.FieldCondition(key=field, range=wire.Range(**dict.fromkeys(ends, value)))
    return wire.Filter(must=[wire.Condition(field=condition)])


def _is_empty(field: str) -> Any:
    from qdrant_client import grpc as wire

    return wire.Filter(must=[wire.Condition(is_empty=wire.IsEmptyCondition(key=field))])


def _none_of(one: Any) -> Any:
    from qdrant_client import grpc as wire

    return wire.Filter(must_not=[wire.Condition(filter=one)])


def _any_of(*filters: Any) -> Any:
    from qdrant_client import grpc as wire

    return wire.Filter(should=[wire.Condition(filter=one) for one in filters])
