"""The bytes of vectors and local features in an SQLite store: written with a checksum, seen to be right when read."""

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.sqlite_file import SqliteFile
from diptych.search.stores.store import Entry, Layout, are_units

# An entry's number, its bytes, and their checksum; None in a file that has none.
Blob = tuple[int, bytes, int | None]
ROWS_AT_ONCE = 1024


def insert_blobs(db: sqlite3.Connection, numbered: Sequence[tuple[int, Entry]], checksummed: bool) -> None:
    """Write the vectors and local features of entries."""
    rest = ", ?" if checksummed else ""
    vectors = ((i, np.ascontiguousarray(e.vectors, "<f4").tobytes()) for i, e in numbered)
    db.executemany(f"INSERT INTO vectors VALUES (?, ?{rest})", (_summed(row, checksummed) for row in vectors))
    locals_ = (
        (i, *e.locals.shape, np.ascontiguousarray(e.locals, "<f2").tobytes())
        for i, e in numbered
        if e.locals is not None
    )
    db.executemany(f"INSERT INTO locals VALUES (?, ?, ?, ?{rest})", (_summed(row, checksummed) for row in locals_))


def checksum_column(file: SqliteFile) -> str:
    """What to select beside the bytes."""
    return "checksum" if file.checksummed else "NULL"


def decoded_vectors(db: sqlite3.Connection, path: Path, layout: Layout, blobs: Sequence[Blob]) -> np.ndarray:
    """Bytes as vectors (n, K, d); an error names the first entry whose vectors are not as they were written."""
    wrong = next((number for number, data, known in blobs if not _whole(data, known, layout)), None)
    if wrong is None:
        vectors = np.frombuffer(b"".join(blob[1] for blob in blobs), "<f4").reshape(-1, layout.set_size, layout.dim)
        if not blobs or blobs[0][2] is not None:
            return vectors
        units = are_units(vectors)  # all that can be seen without checksums
        if units.all():
            return vectors
        wrong = blobs[int(units.argmin())][0]
    raise DiptychError(
        f"{path}: the file is damaged: the vector of {_key(db, wrong)!r} is not as it was written; "
        "`diptych index --check` finds all of them"
    )


def decoded_locals(
    db: sqlite3.Connection, path: Path, number: int, shape: tuple[int, int], data: bytes, known: int | None
) -> np.ndarray:
    """Bytes as local features (cells, f); an error names the entry where they are not as they were written."""
    if not _whole_locals(shape, data, known):
        raise DiptychError(
            f"{path}: the file is damaged: the local features of {_key(db, number)!r} are not as they were written; "
            "`diptych index --check` finds all of them"
        )
    return np.frombuffer(data, "<f2").reshape(shape)


def damaged_keys(db: sqlite3.Connection, file: SqliteFile) -> Iterator[str]:
    """The keys of all entries whose vectors or local features are missing or not as they were written."""
    known = checksum_column(file)
    after = -1
    while rows := db.execute(
        f"SELECT id, key, vectors.data, {_of('vectors', known)}, cells, width, locals.data, "
        f"{_of('locals', known)} FROM entries LEFT JOIN vectors ON vectors.entry = id "
        "LEFT JOIN locals ON locals.entry = id WHERE id > ? ORDER BY id LIMIT ?",
        (after, ROWS_AT_ONCE),
    ).fetchall():
        for _, key, data, checksum, cells, width, features, features_checksum in rows:
            right = data is not None and _whole(data, checksum, file.layout) and _unit(data, file.layout)
            if features is not None:
                right = right and _whole_locals((cells, width), features, features_checksum)
            if not right:
                yield key
        after = rows[-1][0]


def _of(table: str, column: str) -> str:
    return column if column == "NULL" else f"{table}.{column}"


def _summed(row: tuple[object, ...], checksummed: bool) -> tuple[object, ...]:
    data = row[-1]
    assert isinstance(data, bytes)
    return (*row, zlib.crc32(data)) if checksummed else row


def _whole(data: object, known: int | None, layout: Layout) -> bool:
    """Whether bytes have their length and, where there is one, their checksum."""
    if not isinstance(data, bytes):  # SQLite keeps what it is given
        return False
    return len(data) == 4 * layout.set_size * layout.dim and (known is None or zlib.crc32(data) == known)


def _unit(data: bytes, layout: Layout) -> bool:
    return bool(are_units(np.frombuffer(data, "<f4").reshape(1, layout.set_size, layout.dim))[0])


def _whole_locals(shape: tuple[int, int], data: object, known: int | None) -> bool:
    if not isinstance(data, bytes):
        return False
    return len(data) == 2 * shape[0] * shape[1] and (known is None or zlib.crc32(data) == known)


def _key(db: sqlite3.Connection, number: int) -> str:
    row = db.execute("SELECT key FROM entries WHERE id = ?", (number,)).fetchone()
    return str(row[0]) if row else f"entry {number}"
