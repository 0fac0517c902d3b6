"""Filters as SQL, as Milvus expressions and as plain Python, with one meaning."""

import json
import re
from collections.abc import Mapping, Sequence

from diptych.common.errors import DiptychError, nearest
from diptych.search.stores.dates import date_fits, date_milvus, date_span, date_sql
from diptych.search.stores.store import OWN_FIELDS, Condition, Value, is_unicode

OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "matches"]


def check_conditions(where: Sequence[Condition]) -> None:
    """Refuse a filter that means nothing: an operator that its field does not have, or a value of the wrong type."""
    for condition in where:
        name = f"filter {condition.field!r} {condition.operator} {condition.value!r}"
        if condition.operator not in OPERATORS:
            raise DiptychError(f"{name}: {nearest(condition.operator, OPERATORS)}")
        if not all(is_unicode(text) for text in (condition.field, condition.value) if isinstance(text, str)):
            raise DiptychError(f"{name}: not valid Unicode text")
        if condition.operator == "matches" and not isinstance(condition.value, str):
            raise DiptychError(f"{name}: a pattern is text")
        if isinstance(condition.value, str) and "\x00" in condition.value:
            raise DiptychError(f"{name}: a value cannot hold the character 0")
        if condition.field == "path" and not isinstance(condition.value, str):
            raise DiptychError(f"{name}: a path is text")
        if condition.field == "kind" and condition.operator not in ("=", "!="):
            raise DiptychError(f"{name}: a kind is asked for with = or !=")
        if condition.field == "kind" and condition.value not in ("picture", "sentence"):
            raise DiptychError(f"{name}: a kind is 'picture' or 'sentence'")
        if condition.field == "date":
            if condition.operator == "matches":
                raise DiptychError(f"{name}: a date is compared, not matched")
            date_span(condition.value)


def fits(where: Sequence[Condition], key: str, kind: str, changed: int, metadata: Mapping[str, Value]) -> bool:
    """Whether an entry fits every condition."""
    own: dict[str, Value] = {"path": key, "kind": kind}
    return all(
        date_fits(c, changed, metadata)
        if c.field == "date"
        else _value_fits(c, own[c.field] if c.field in own else metadata.get(c.field))
        for c in where
    )


def to_sql(where: Sequence[Condition]) -> tuple[str, list[Value]]:
    """An SQL expression over a row of `entries`, and its parameters."""
    parts, values = ["1"], list[Value]()
    for condition in where:
        sql, parameters = _sql(condition)
        parts.append(sql)
        values += parameters
    return " AND ".join(parts), values


def to_milvus(where: Sequence[Condition]) -> tuple[str, list[Condition]]:
    """A Milvus expression, and the conditions that the server cannot decide alone: patterns with more than a prefix.

    The expression lets through at least whatever fits those too. It is empty where there is nothing to say.
    """
    parts, rest = [], []
    for condition in where:
        expression, decided = _milvus(condition)
        if expression:
            parts.append(f"({expression})")
        if not decided:
            rest.append(condition)
    return " and ".join(parts), rest


def quoted(text: str) -> str:
    """Text as a string of the Milvus expression language."""
    return json.dumps(text, ensure_ascii=False)


def prefix_range(field: str, prefix: str) -> str:
    """A Milvus expression for text that begins with `prefix`; empty for an empty prefix."""
    if not prefix:
        return ""
    after = _after(prefix)
    return f"{field} >= {quoted(prefix)}" + (f" and {field} < {quoted(after)}" if after else "")


def pattern_prefix(pattern: str) -> tuple[str, list[str]]:
    """The text that a pattern begins with, and its parts from the first on that stands for more than itself."""
    tokens, prefix = _tokens(pattern), ""
    for token in tokens:
        if not token.startswith("="):
            break
        prefix += token[1:]
    return prefix, tokens[len(prefix) :]


def _value_fits(condition: Condition, value: Value | None) -> bool:
    wanted = condition.value
    alike = value is not None and isinstance(value, str) == isinstance(wanted, str)
    if condition.operator == "=":
        return alike and value == wanted
    if condition.operator == "!=":
        return not (alike and value == wanted)
    if not alike:
        return False
    if condition.operator == "matches":
        return _regex(str(wanted)).fullmatch(str(value)) is not None
    return {"<": value < wanted, "<=": value <= wanted, ">": value > wanted, ">=": value >= wanted}[  # type: ignore[operator]
        condition.operator
    ]


def _sql(condition: Condition) -> tuple[str, list[Value]]:
    operator, value = condition.operator, condition.value
    if condition.field == "date":
        return date_sql(condition)
    if operator == "matches":
        operator_sql, value = "GLOB", _sqlite_glob(str(value))
    else:
        operator_sql = operator
    if condition.field in OWN_FIELDS:
        return f"{'key' if condition.field == 'path' else 'kind'} {operator_sql} ?", [value]
    types = "'text'" if isinstance(value, str) else "'integer', 'real'"
    negation = "NOT " if operator == "!=" else ""
    return (
        f"{negation}id IN (SELECT entry FROM metadata WHERE name = ? AND typeof(value) IN ({types}) "
        f"AND value {'=' if negation else operator_sql} ?)",
        [condition.field, value],
    )


def _milvus(condition: Condition) -> tuple[str, bool]:
    operator, value = condition.operator, condition.value
    sign = {"=": "==", "!=": "=="}.get(operator, operator)
    negation = "not " if operator == "!=" else ""
    if condition.field == "date":
        return date_milvus(condition), True
    field = {"path": "key", "kind": "kind"}.get(condition.field, f"metadata[{quoted(condition.field)}]")
    if operator != "matches":
        written = quoted(value) if isinstance(value, str) else repr(value)
        return f"{negation}({field} {sign} {written})", True
    prefix, whole = pattern_prefix(str(value))
    if field == "key":
        return (f"key == {quoted(prefix)}", True) if not whole else (prefix_range("key", prefix), whole == ["*"])
    return f"exists {field}", False


def _after(prefix: str) -> str:
    """The first text after all that begin with `prefix`, in code point order; empty where there is none."""
    while prefix and prefix[-1] == "\U0010ffff":
        prefix = prefix[:-1]
    if not prefix:
        return ""
    # Code points D800 to DFFF are no characters.
    return prefix[:-1] + chr(0xE000 if prefix[-1] == "\ud7ff" else ord(prefix[-1]) + 1)


def _tokens(pattern: str) -> list[str]:
    """A glob pattern in parts: "*", "?", "=c" for the character c, "[abc" and "!abc" for one (not) among some."""
    tokens, i = list[str](), 0
    while i < len(pattern):
        character = pattern[i]
        end = -1
        if character == "[":
            first = i + 2 if pattern[i + 1 : i + 2] == "!" else i + 1
            end = pattern.find("]", first + 1)  # a ] right after the bracket is one of the characters
        if end > 0:
            negated = pattern[i + 1] == "!"
            tokens.append(("!" if negated else "[") + pattern[i + 1 + negated : end])
            i = end + 1
            continue
        if character == "*" and tokens[-1:] == ["*"]:
            i += 1
            continue
        tokens.append(character if character in "*?" else "=" + character)
        i += 1
    return tokens


def _members(token: str) -> tuple[str, list[tuple[str, str]]]:
    """The single characters and the ranges of a bracket; a range that runs backwards holds nothing."""
    body, singles, ranges, i = token[1:], "", [], 0
    while i < len(body):
        if body[i + 1 : i + 2] == "-" and i + 2 < len(body):
            ranges.append((body[i], body[i + 2]))
            i += 3
        else:
            singles += body[i]
            i += 1
    return singles, [r for r in ranges if r[0] <= r[1]]


def _regex(pattern: str) -> re.Pattern[str]:
    parts = []
    for token in _tokens(pattern):
        if token in "*?":
            parts.append({"*": ".*", "?": "."}[token])
        elif token[0] == "=":
            parts.append(re.escape(token[1:]))
        else:
            singles, ranges = _members(token)
            inside = "".join(re.escape(c) for c in singles) + "".join(
                f"{re.escape(a)}-{re.escape(b)}" for a, b in ranges
            )
            if token[0] == "!":
                parts.append(f"[^{inside}]" if inside else ".")
            else:
                parts.append(f"[{inside}]" if inside else "(?!)")
    return re.compile("".join(parts), re.DOTALL)


def _sqlite_glob(pattern: str) -> str:
    """The same pattern as SQLite writes it: [^...] for not among, and [*] for a star itself."""
    parts = []
    for token in _tokens(pattern):
        if token in "*?":
            parts.append(token)
        elif token[0] == "=":
            parts.append(f"[{token[1]}]" if token[1] in "*?[" else token[1])
        else:
            singles, ranges = _members(token)
            # Within SQLite's brackets ] must come first, ^ must not, and - must not look like a range of others.
            ranges = sorted({*ranges, *((c, c) for c in singles)})
            first = "]" if any(a == "]" for a, _ in ranges) else ""
            ranges = [("^", b) if a == "]" else (a, b) for a, b in ranges if (a, b) != ("]", "]")]
            ranges = [(b, b) for _, b in ranges if b != "^"][:1] + ranges
            inside = first + "".join(f"{a}-{b}" for a, b in ranges)
            if token[0] == "[" and inside == "^-^":
                parts.append("^")
                continue
            if token[0] == "!":
                parts.append(f"[^{inside}]" if inside else "?")
            else:
                parts.append(f"[{inside}]" if inside else "[^\x01-\U0010ffff]")
    return "".join(parts)
