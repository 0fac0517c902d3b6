"""Rows of a server in the order of their keys, however many: sorted on this machine's disk, not in its memory."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any


def in_key_order(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows with a field `key`, in the order of that; all are read before this returns."""
    # A database without a name is a temporary one, which goes to disk when it gets large.
    db = sqlite3.connect("", check_same_thread=False)
    try:
        db.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, data TEXT) WITHOUT ROWID")
        db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", ((row["key"], json.dumps(row)) for row in rows))
    except BaseException:
        db.close()
        raise
    return _read(db)


def _read(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    with closing(db):
        for (data,) in db.execute("SELECT data FROM rows ORDER BY key"):
            yield json.loads(data)
