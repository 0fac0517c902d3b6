"""The SQLite file of a new store: its tables, and how it comes to be there whole."""

import fcntl
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diptych.search.stores.store import Layout

APPLICATION_ID = 0x44495054  # "DIPT"
# Version 3 keeps a checksum (crc32) beside the bytes of vectors and local features; 2 several similarities of sets.
VERSION = 3
# A vector of 512 floats is 2 KiB: pages of 4 KiB would stay half empty.
PAGE_SIZE = 16384

SCHEMA = (
    # forgotten: deletions up to this number are no longer listed in `deletions`
    """CREATE TABLE store (uid TEXT NOT NULL, dim INTEGER NOT NULL, set_size INTEGER NOT NULL, alpha REAL NOT NULL,
        forgotten INTEGER NOT NULL DEFAULT 0, similarity TEXT NOT NULL)""",
    "CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL CHECK (kind IN ('picture', 'sentence')), text TEXT NOT NULL, size INTEGER NOT NULL,
        changed INTEGER NOT NULL, digest TEXT NOT NULL, spread INTEGER NOT NULL)""",
    "CREATE INDEX entries_by_spread ON entries (spread)",
    """CREATE TABLE metadata (entry INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE, name TEXT NOT NULL,
        value NOT NULL, PRIMARY KEY (entry, name)) WITHOUT ROWID""",
    "CREATE INDEX metadata_by_value ON metadata (name, value)",
    """CREATE TABLE vectors (entry INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE, data BLOB NOT NULL,
        checksum INTEGER NOT NULL)""",
    """CREATE TABLE locals (entry INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE, cells INTEGER NOT NULL,
        width INTEGER NOT NULL, data BLOB NOT NULL, checksum INTEGER NOT NULL)""",
    "CREATE TABLE deletions (sequence INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL)",
    """CREATE TRIGGER entry_is_gone AFTER DELETE ON entries
        BEGIN INSERT INTO deletions (entry) VALUES (old.id); END""",
)


def make_file(path: Path, layout: Layout) -> None:
    """Make the file aside and give it its name when it is whole; of several processes that try, one does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        db = sqlite3.connect(aside, isolation_level=None)
        try:
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            for statement in SCHEMA:
                db.execute(statement)
            values = (uuid.uuid4().hex, layout.dim, layout.set_size, layout.alpha, layout.similarity)
            db.execute("INSERT INTO store (uid, dim, set_size, alpha, similarity) VALUES (?, ?, ?, ?, ?)", values)
            db.execute("PRAGMA journal_mode = WAL")
        finally:
            db.close()
        with _alone_in(path.parent):
            if path.exists() and path.stat().st_size:
                return  # another process was first
            path.unlink(missing_ok=True)
            # A log that a deleted file left behind would be played into the new one.
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            with suppress(FileExistsError, FileNotFoundError):
                os.link(aside, path)  # unlike a rename, it fails where another process was first
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other process makes a store in this folder meanwhile, where the file system can see to that."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
