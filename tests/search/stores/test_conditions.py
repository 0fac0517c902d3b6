"""Filters mean the same as SQL and as Python, and globs are those of the shell."""

import sqlite3
from datetime import datetime
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import (
    _after,
    check_conditions,
    date_span,
    fits,
    prefix_range,
    to_milvus,
    to_sql,
)
from diptych.search.stores.sqlite_making import SCHEMA
from diptych.search.stores.store import Condition

PIECES = st.sampled_from([*"ab-]^![*?c/._", "[a-c]", "[!x]", "[]a]", "é", "%"])
PATTERNS = st.lists(PIECES, max_size=6).map("".join)
TEXTS = st.text(st.sampled_from("ab-]^![*?c/._é%"), max_size=5)


@settings(max_examples=600, deadline=None)
@given(PATTERNS, TEXTS)
@example("[^]", "^")
@example("[]-_a]", "]")
@example("[^^]", "a")
@example("[a", "[a")
def test_globs_are_those_of_the_shell(pattern: str, text: str) -> None:
    condition = [Condition("path", "matches", pattern)]
    wanted = fnmatchcase(text, pattern)
    assert fits(condition, text, "picture", 0, {}) == wanted
    sql, values = to_sql(condition)
    db = sqlite3.connect(":memory:")
    assert bool(db.execute(f"SELECT {sql} FROM (SELECT ? AS key)", [*values, text]).fetchone()[0]) == wanted
    db.close()


VALUES = st.one_of(st.integers(-2, 2), st.sampled_from([0.5, -1.5, 1e300]), st.sampled_from(["", "a", "b", "B", "ä"]))
CONDITIONS = st.builds(
    Condition,
    st.sampled_from(["x", "y"]),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    VALUES,
) | st.builds(
    Condition, st.just("date"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.sampled_from([1, 2, 3])
)


@settings(max_examples=300, deadline=None)
@given(st.lists(CONDITIONS, max_size=3), st.dictionaries(st.sampled_from("xy"), VALUES), st.integers(0, 4))
def test_sql_and_python_agree(where: list[Condition], metadata: dict[str, str | float], seconds: int) -> None:
    check_conditions(where)
    changed = seconds * 1_000_000_000
    db = sqlite3.connect(":memory:")
    for statement in SCHEMA:
        db.execute(statement)
    db.execute("INSERT INTO entries VALUES (1, 'k', 'picture', '', 0, ?, '', 0)", (changed,))
    db.executemany("INSERT INTO metadata VALUES (1, ?, ?)", metadata.items())
    sql, values = to_sql(where)
    found = db.execute(f"SELECT count(*) FROM entries WHERE {sql}", values).fetchone()[0]
    assert bool(found) == fits(where, "k", "picture", changed, metadata)
    db.close()


def at(*parts: int) -> int:
    return round(datetime(*parts).timestamp()) * 1_000_000_000  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("2024", at(2024, 1, 1), at(2025, 1, 1)),
        ("2024-12", at(2024, 12, 1), at(2025, 1, 1)),
        ("2024-02", at(2024, 2, 1), at(2024, 3, 1)),
        ("2024-02-29", at(2024, 2, 29), at(2024, 3, 1)),
        ("2024-02-29 12:30", at(2024, 2, 29, 12, 30), at(2024, 2, 29, 12, 31)),
        ("2024-02-29T12:30:59", at(2024, 2, 29, 12, 30, 59), at(2024, 2, 29, 12, 31)),
        (1.5, 1_500_000_000, 1_500_000_001),
    ],
)
def test_dates_have_a_length(value: str | float, start: int, end: int) -> None:
    assert date_span(value) == (start, end)


@pytest.mark.parametrize("value", ["yesterday", "2024-13", "2023-02-29", "", "24"])
def test_no_dates(value: str) -> None:
    with pytest.raises(DiptychError, match="expected 2024, 2024-05"):
        date_span(value)


def test_what_a_server_decides_and_what_is_left() -> None:
    simple = [Condition("path", "matches", "a/b*"), Condition("year", "!=", 3), Condition("kind", "=", "picture")]
    expression, rest = to_milvus(simple)
    assert expression == '(key >= "a/b" and key < "a/c") and (not (metadata["year"] == 3)) and ((kind == "picture"))'
    assert rest == []
    hard = [Condition("path", "matches", "a/*.jpg"), Condition("camera", "matches", "L*")]
    expression, rest = to_milvus(hard)
    assert expression == '(key >= "a/" and key < "a0") and (exists metadata["camera"])'
    assert rest == hard
    assert to_milvus([Condition("path", "matches", "x.jpg")]) == ('(key == "x.jpg")', [])
    assert to_milvus([Condition("path", "matches", "*x")]) == ("", [Condition("path", "matches", "*x")])
    assert to_milvus([]) == ("", [])


@given(st.text(max_size=4), st.text(max_size=4))
@example("\ud7ff", "\ue000")
@example("a\U0010ffff", "b")
@example("\U0010ffff", "\U0010ffffa")
def test_what_begins_with_a_prefix_lies_in_its_range(prefix: str, text: str) -> None:
    after = _after(prefix)
    inside = prefix <= text and (not after or text < after)
    assert inside == (text.startswith(prefix) or prefix == "")
    assert bool(prefix_range("key", prefix)) == bool(prefix)


@pytest.mark.parametrize("condition", [Condition("path", "matches", "\udcff*"), Condition("\udcff", "=", "x")])
def test_half_of_a_surrogate_pair_is_told(condition: Condition) -> None:
    with pytest.raises(DiptychError, match="not valid Unicode text"):
        check_conditions([condition])
