"""What a store's SQLite file says of its entries without their vectors, read a few thousand at a time."""

import sqlite3
from collections.abc import Iterator, Sequence

from diptych.search.stores.conditions import check_conditions, to_sql
from diptych.search.stores.sqlite_file import SqliteFile
from diptych.search.stores.store import Condition, Record, Stamp, Value

# Rows that are read without holding the file.
ROWS_AT_ONCE = 4096
# From one name to the next, however many rows each has.
_NAMES = """WITH RECURSIVE names (name) AS (
    SELECT min(name) FROM metadata
    UNION ALL SELECT (SELECT min(name) FROM metadata WHERE name > names.name) FROM names WHERE name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL"""


def read_records(file: SqliteFile, where: Sequence[Condition]) -> Iterator[Record]:
    """The entries that fit, in key order."""
    check_conditions(where)
    sql, values = to_sql(where)
    after = ""
    while True:
        with file.reading() as db:
            rows = db.execute(
                f"SELECT id, key, kind, text, size, changed, digest FROM entries WHERE key > ? AND {sql} "
                "ORDER BY key LIMIT ?",
                (after, *values, ROWS_AT_ONCE),
            ).fetchall()
            metadata = _metadata(db, [row[0] for row in rows])
        for i, key, kind, text, size, changed, digest in rows:
            yield Record(key, kind, Stamp(key, size, changed, digest), text, metadata.get(i, {}))
        if len(rows) < ROWS_AT_ONCE:
            return
        after = rows[-1][1]


def read_columns(file: SqliteFile) -> list[str]:
    """The names of all metadata columns."""
    with file.reading() as db:
        return [name for (name,) in db.execute(_NAMES)]


def has_column(file: SqliteFile, name: str) -> bool:
    """Whether any entry has a column."""
    with file.reading() as db:
        return db.execute("SELECT 1 FROM metadata WHERE name = ? LIMIT 1", (name,)).fetchone() is not None


def _metadata(db: sqlite3.Connection, ids: list[int]) -> dict[int, dict[str, Value]]:
    metadata: dict[int, dict[str, Value]] = {}
    numbers = ",".join(map(str, ids))
    for entry, name, value in db.execute(f"SELECT entry, name, value FROM metadata WHERE entry IN ({numbers})"):
        metadata.setdefault(entry, {})[name] = value
    return metadata
