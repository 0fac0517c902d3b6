"""What is written in pictures, in a full-text index of the SQLite file; made when the first text comes."""

import sqlite3
from collections.abc import Iterable, Sequence

from diptych.search.stores.store import WRITTEN, Value

_SCHEMA = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS written USING fts5(text, tokenize = 'unicode61')",
    """CREATE TRIGGER IF NOT EXISTS written_is_gone AFTER DELETE ON entries
        BEGIN DELETE FROM written WHERE rowid = old.id; END""",
)


def keep_written(db: sqlite3.Connection, described: Iterable[tuple[int, dict[str, Value]]]) -> None:
    """Bring the index in step with the columns of entries, by their numbers."""
    there = _is_there(db)
    for number, columns in described:
        text = columns.get(WRITTEN)
        if there:
            db.execute("DELETE FROM written WHERE rowid = ?", (number,))
        if isinstance(text, str) and text:
            if not there:
                for statement in _SCHEMA:
                    db.execute(statement)
                there = True
            db.execute("INSERT INTO written (rowid, text) VALUES (?, ?)", (number, text))


def find_written(
    db: sqlite3.Connection, words: Sequence[str], top: int, fitting: str, values: Sequence[Value]
) -> list[str]:
    """Keys of entries in which all the words are written, best first by BM25.

    fitting: an SQL expression over a row of `entries`, with its values
    """
    if not words or not _is_there(db):
        return []
    asked = " ".join('"{}"'.format(word.replace('"', '""')) for word in words)
    rows = db.execute(
        "SELECT key FROM (SELECT rowid AS found, rank AS place FROM written WHERE written MATCH ?) "
        f"JOIN entries ON id = found WHERE {fitting} ORDER BY place, key LIMIT ?",
        [asked, *values, top],
    )
    return [row[0] for row in rows]


def _is_there(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'written'").fetchone() is not None
