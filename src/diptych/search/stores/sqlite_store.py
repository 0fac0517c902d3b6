"""A store in one SQLite file: records and vectors together; everything beside it can be made again from it."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.conditions import check_conditions, to_sql
from diptych.search.stores.sqlite_blobs import (
    checksum_column,
    damaged_keys,
    decoded_locals,
    decoded_vectors,
    insert_blobs,
)
from diptych.search.stores.sqlite_file import SqliteFile
from diptych.search.stores.sqlite_records import ROWS_AT_ONCE, has_column, read_columns, read_records
from diptych.search.stores.sqlite_written import find_written, keep_written
from diptych.search.stores.store import (
    EXACT_UP_TO,
    RECALL_FLOOR,
    Condition,
    Description,
    Entry,
    Hit,
    Layout,
    Record,
    Search,
    Stamp,
    Value,
    check_entries,
    check_fields,
    check_key,
    check_queries,
    spread_of,
)

if TYPE_CHECKING:  # these need torch, which takes longer to load than an unchanged folder to compare
    from diptych.search.stores.sqlite_vectors import SqliteVectors
    from diptych.search.stores.vectors import BestRows, Vectors

# Placeholders in one statement.
KEYS_AT_ONCE = 500

T = TypeVar("T")


class SqliteStore:
    """Entries in an SQLite file with a write-ahead log: one writer at a time, readers any number, each undisturbed.

    `layout` makes the file where there is none. Up to `exact_up_to` vectors every search is exact; beyond, `prepare`
    builds an approximate index, which is used when its measured recall reaches `recall_floor`. A search with filters
    is always exact.
    """

    def __init__(
        self,
        path: Path | str,
        layout: Layout | None = None,
        *,
        exact_up_to: int = EXACT_UP_TO,
        recall_floor: float = RECALL_FLOOR,
        patience: float = 30.0,
    ) -> None:
        self.path = Path(path)
        self._file = SqliteFile(self.path, layout, patience)
        self._limits = exact_up_to, recall_floor
        self._loading = threading.Lock()
        self._loaded: SqliteVectors | None = None

    @property
    def _live(self) -> "SqliteVectors":
        from diptych.search.stores.sqlite_vectors import SqliteVectors

        with self._loading:
            if self._loaded is None:
                self._loaded = SqliteVectors(self._file, *self._limits)
            return self._loaded

    @property
    def address(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""
        return self._file.layout

    @property
    def identity(self) -> str:
        """Which store it is now: the file's own name for itself, and how often another took its place."""
        with self._file.explained():
            self._file.connection()
        return f"{self._file.uid} {self._file.generation}"

    @property
    def state(self) -> str | None:
        """Another text after every change: numbers that only grow, and when the file and its log were written."""
        from diptych.search.stores.sqlite_vectors import sequence

        identity = self.identity
        with self._file.reading() as db:
            numbers = sequence(db, "entries"), sequence(db, "deletions")
        # An entry that is renamed changes neither number.
        written = [_written(self.path), _written(self.path.with_name(f"{self.path.name}-wal"))]
        return f"{identity} {numbers} {written}"

    @property
    def state_takes_time(self) -> bool:
        """The file is looked at."""
        return False

    @property
    def dim(self) -> int:
        """d."""
        return self.layout.dim

    @property
    def set_size(self) -> int:
        """K."""
        return self.layout.set_size

    @property
    def recall(self) -> float | None:
        """The measured recall of the approximate index in use; None while searches are exact."""
        with self._live.looking() as (_, vectors):
            approximate = self._live.approximate(vectors)
        return approximate.header.recall if approximate else None

    @property
    def properties(self) -> dict[str, str]:
        """Small strings by name."""
        with self._file.reading() as db:
            return dict(db.execute("SELECT name, value FROM properties ORDER BY name"))

    def set_properties(self, changes: dict[str, str]) -> None:
        """Add or change properties."""
        with self._file.writing() as db:
            db.executemany("INSERT OR REPLACE INTO properties VALUES (?, ?)", changes.items())
        self._file.noted(changes)

    def delete_properties(self, names: Sequence[str]) -> None:
        """Remove properties; those that are not there are no error."""
        with self._file.writing() as db:
            db.executemany("DELETE FROM properties WHERE name = ?", ((name,) for name in names))

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries in one transaction; one with a key that is there already takes its place."""
        check_entries(entries, self.layout, self.address)
        if not entries:
            return
        from diptych.search.stores.sqlite_vectors import sequence

        with self._file.writing() as db:
            _remove(db, [e.key for e in entries])
            first = sequence(db, "entries") + 1
            numbered = list(enumerate(entries, first))
            db.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (i, e.key, e.kind, e.text, e.stamp.size, e.stamp.changed, e.stamp.digest, spread_of(e.key))
                    for i, e in numbered
                ),
            )
            insert_blobs(db, numbered, self._file.checksummed)
            db.executemany(
                "INSERT INTO metadata VALUES (?, ?, ?)",
                ((i, name, value) for i, e in numbered for name, value in e.metadata.items()),
            )
            keep_written(db, ((i, e.metadata) for i, e in numbered))

    def describe(self, descriptions: Sequence[Description]) -> None:
        """Entries take other stamps and columns in one transaction; their vectors stay."""
        for new in descriptions:
            check_fields(new.stamp.key, "", new.metadata, f"{self.address}: entry {new.stamp.key!r}")
        with self._file.writing() as db:
            for new in descriptions:
                stamp = new.stamp
                row = db.execute("SELECT id FROM entries WHERE key = ?", (stamp.key,)).fetchone()
                if row is None:
                    continue
                values = (stamp.size, stamp.changed, stamp.digest, row[0])
                db.execute("UPDATE entries SET size = ?, changed = ?, digest = ? WHERE id = ?", values)
                db.execute("DELETE FROM metadata WHERE entry = ?", row)
                columns = ((row[0], name, value) for name, value in new.metadata.items())
                db.executemany("INSERT INTO metadata VALUES (?, ?, ?)", columns)
                keep_written(db, [(row[0], new.metadata)])

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; how many were there."""
        with self._file.writing() as db:
            return _remove(db, keys)

    def get(self, keys: Sequence[str], *, locals: bool = True) -> list[Entry | None]:
        """Whole entries in the order asked for, None where there is none."""
        entries: dict[str, Entry] = {}
        with self._file.reading() as db:
            for some in _chunks(list(dict.fromkeys(keys))):
                for entry in self._read_entries(db, some, locals):
                    entries[entry.key] = entry
        return [entries.get(key) for key in keys]

    def stamps(self, prefix: str = "") -> Iterator[Stamp]:
        """The stamps of all entries whose key begins with `prefix`, in key order; read a few thousand at a time."""
        after, sign = prefix, ">="
        while True:
            with self._file.reading() as db:
                rows = db.execute(
                    f"SELECT key, size, changed, digest FROM entries WHERE key {sign} ? ORDER BY key LIMIT ?",
                    (after, ROWS_AT_ONCE),
                ).fetchall()
            for row in rows:
                if not row[0].startswith(prefix):
                    return
                yield Stamp(*row)
            if len(rows) < ROWS_AT_ONCE:
                return
            after, sign = rows[-1][0], ">"

    def records(self, where: Sequence[Condition] = ()) -> Iterator[Record]:
        """The entries that fit, in key order, without their vectors."""
        return read_records(self._file, where)

    def columns(self) -> list[str]:
        """The names of all metadata columns, in order."""
        return read_columns(self._file)

    def has_column(self, name: str) -> bool:
        """Whether any entry has a metadata column of this name."""
        return has_column(self._file, name)

    def rename(self, old: str, new: Stamp) -> None:
        """A file moved: the entry takes its new key and stamp, vectors and metadata stay."""
        check_key(new.key, self.address)
        with self._file.writing() as db:
            if new.key != old:
                _remove(db, [new.key])
            changed = db.execute(
                "UPDATE entries SET key = ?, size = ?, changed = ?, digest = ?, spread = ? WHERE key = ?",
                (new.key, new.size, new.changed, new.digest, spread_of(new.key), old),
            ).rowcount
            if not changed:
                raise DiptychError(f"{self.address}: there is no {old!r} to rename")

    def search(self, queries: np.ndarray, top: int, where: Sequence[Condition] = ()) -> Search:
        """The `top` best of those that fit `where`, for each query (q, K, d), by cosine or smooth-Chamfer."""
        queries = check_queries(queries, top, self.layout, self.address)
        check_conditions(where)
        with self._live.looking() as (db, vectors):
            approximate = None if where else self._live.approximate(vectors)
            best = None if approximate is None else self._live.nearly_best(approximate, vectors, queries, top)
            if best is None:
                approximate = None
                rows = vectors.rows_of(_fitting(db, where)) if where else None
                best = vectors.search(queries, top, rows)
            if self._live.trusts(vectors, best):
                recall = None if approximate is None else approximate.header.recall
                return Search(_hits(db, vectors, best), approximate is None, recall)
        self._live.distrust()
        return self.search(queries, top, where)

    def written(self, words: Sequence[str], top: int, where: Sequence[Condition] = ()) -> list[str]:
        """Keys of entries that fit `where` and in whose column `written` all the words stand, best first."""
        check_conditions(where)
        with self._file.reading() as db:
            return find_written(db, words, top, *to_sql(where))

    def damaged(self) -> Iterator[str]:
        """The keys of entries whose vectors are not as they were written; all of the file is read."""
        with self._file.reading() as db:
            said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if said != "ok":
                raise DiptychError(f"{self.address}: the file is damaged; delete it and index again ({said})")
            yield from damaged_keys(db, self._file)
            self._live.check_caches(db)

    def background(self, count: int, where: Sequence[Condition] = ()) -> np.ndarray:
        """Vectors (count, K, d) of entries spread over the store, the same every time for the same contents."""
        check_conditions(where)
        sql, values = to_sql(where)
        with self._file.reading() as db:
            rows = db.execute(
                f"SELECT id, data, {checksum_column(self._file)} FROM "
                f"(SELECT id, spread, key FROM entries WHERE {sql} ORDER BY spread, key LIMIT ?) "
                "JOIN vectors ON entry = id ORDER BY spread, key",
                [*values, count],
            ).fetchall()
            return decoded_vectors(db, self.path, self.layout, rows)

    def count(self, where: Sequence[Condition] = ()) -> int:
        """How many entries fit."""
        check_conditions(where)
        sql, values = to_sql(where)
        with self._file.reading() as db:
            return int(db.execute(f"SELECT count(*) FROM entries WHERE {sql}", values).fetchone()[0])

    def prepare(self, queries: np.ndarray | None = None) -> None:
        """Write the file of vectors and, beyond the exact range, the approximate index, where they have drifted."""
        if queries is not None:
            queries = check_queries(queries, 1, self.layout, self.address)
        self._live.prepare(queries)

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        self._file.close()
        if self._loaded is not None:
            self._loaded.close()

    def _read_entries(self, db: sqlite3.Connection, keys: Sequence[str], locals: bool) -> Iterator[Entry]:
        marks = ",".join("?" * len(keys))
        known = checksum_column(self._file)
        rows = db.execute(
            f"SELECT id, key, kind, text, size, changed, digest, data, {known} FROM entries JOIN vectors ON entry = id "
            f"WHERE key IN ({marks})",
            keys,
        ).fetchall()
        numbers = ",".join(str(row[0]) for row in rows)
        metadata: dict[int, dict[str, Value]] = {}
        for entry, name, value in db.execute(f"SELECT entry, name, value FROM metadata WHERE entry IN ({numbers})"):
            metadata.setdefault(entry, {})[name] = value
        cells: dict[int, np.ndarray] = {}
        if locals:
            columns = f"entry, cells, width, data, {known}"
            for entry, count, width, data, checksum in db.execute(
                f"SELECT {columns} FROM locals WHERE entry IN ({numbers})"
            ):
                cells[entry] = decoded_locals(db, self.path, entry, (count, width), data, checksum)
        vectors = decoded_vectors(db, self.path, self.layout, [(row[0], *row[-2:]) for row in rows])
        for (i, key, kind, text, size, changed, digest, *_), own in zip(rows, vectors, strict=True):
            yield Entry(key, kind, own, Stamp(key, size, changed, digest), text, metadata.get(i, {}), cells.get(i))


def _written(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _remove(db: sqlite3.Connection, keys: Sequence[str]) -> int:
    return sum(
        db.execute(f"DELETE FROM entries WHERE key IN ({','.join('?' * len(some))})", some).rowcount
        for some in _chunks(keys)
    )


def _fitting(db: sqlite3.Connection, where: Sequence[Condition]) -> np.ndarray:
    """The ids of the entries that fit."""
    sql, values = to_sql(where)
    return np.fromiter((row[0] for row in db.execute(f"SELECT id FROM entries WHERE {sql}", values)), np.int64)


def _hits(db: sqlite3.Connection, vectors: "Vectors", best: "BestRows") -> list[list[Hit]]:
    """Rows as hits with their keys, best first, equals in the order of their keys."""
    numbers = np.where(np.isfinite(best.scores.numpy()), vectors.ids[best.rows.numpy()] if len(vectors) else -1, -1)
    keys: dict[int, str] = {}
    for some in _chunks(np.unique(numbers).tolist()):
        keys.update(db.execute(f"SELECT id, key FROM entries WHERE id IN ({','.join('?' * len(some))})", some))
    return [
        [Hit(key, -s) for s, key in sorted((-s, keys[i]) for i, s in zip(row, scores, strict=True) if i >= 0)]
        for row, scores in zip(numbers.tolist(), best.scores.tolist(), strict=True)
    ]


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), KEYS_AT_ONCE):
        yield items[start : start + KEYS_AT_ONCE]
