"""The SQLite file of a store: its tables, a connection a thread, and errors in plain words."""

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from diptych.common.errors import DiptychError
from diptych.search.stores.store import Layout, check_layout

APPLICATION_ID = 0x44495054  # "DIPT"
VERSION = 2
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
    "CREATE TABLE vectors (entry INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE, data BLOB NOT NULL)",
    """CREATE TABLE locals (entry INTEGER PRIMARY KEY REFERENCES entries ON DELETE CASCADE, cells INTEGER NOT NULL,
        width INTEGER NOT NULL, data BLOB NOT NULL)""",
    "CREATE TABLE deletions (sequence INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL)",
    """CREATE TRIGGER entry_is_gone AFTER DELETE ON entries
        BEGIN INSERT INTO deletions (entry) VALUES (old.id); END""",
)


class SqliteFile:
    """A store's file, opened or made. Each thread has a connection of its own, closed with it or with the file.

    patience: seconds to wait for another process that is writing
    """

    def __init__(self, path: Path, layout: Layout | None, patience: float) -> None:
        self.path = path
        self.patience = patience
        self._local = threading.local()
        self._handles: list[_Handle] = []
        self._lock = threading.Lock()
        self.closed = False
        with self.explained():
            if layout is not None and (not path.exists() or path.stat().st_size == 0):
                _make(path, layout)
            if not path.exists():
                raise DiptychError(f"{path}: no such index")
            self._check_header()
            self._check_tables()
            # Version 1 knew one similarity of sets, the default.
            version = self.connection().execute("PRAGMA user_version").fetchone()[0]
            columns = "uid, dim, set_size, alpha" + (", similarity" if version > 1 else "")
            row = self.connection().execute(f"SELECT {columns} FROM store").fetchone()
        self.uid: str = row[0]
        self.layout = Layout(*row[1:])
        try:
            check_layout(self.layout, layout, str(path))
        except DiptychError:
            self.close()
            raise

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        if self.closed:
            raise DiptychError(f"{self.path}: the store is closed")
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.process != os.getpid():
            handle = self._local.handle = _Handle(self._connect())
            with self._lock:
                for ended in [h for h in self._handles if not h.thread.is_alive()]:
                    ended.close()
                    self._handles.remove(ended)
                self._handles.append(handle)
        return handle.connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One unchanging view of the file, whatever is written meanwhile."""
        with self.explained():
            db = self.connection()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all that happens within is kept, or nothing after an error."""
        with self.explained():
            db = self.connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """SQLite's errors as one sentence that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise DiptychError(f"{self.path}: {_explanation(code, self.patience) or error}") from error
        except OSError as error:
            raise DiptychError(f"{self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close every thread's connection."""
        self.closed = True
        with self._lock:
            for handle in self._handles:
                handle.close()
            self._handles.clear()

    def _connect(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path.absolute()))}"
        wal = self.path.with_name(self.path.name + "-wal")
        if not os.access(self.path.parent, os.W_OK) and not wal.exists():
            # Where nothing can be written, a write-ahead log cannot be opened, and none is needed.
            address += "?immutable=1"
        db = sqlite3.connect(address, self.patience, isolation_level=None, check_same_thread=False, uri=True)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cache_size = -32768")
        db.execute("PRAGMA journal_size_limit = 67108864")
        return db

    def _check_header(self) -> None:
        """Say so before SQLite touches it when the file is something else."""
        if self.path.is_dir():
            raise DiptychError(f"{self.path}: a folder; expected the file of an index")
        with self.path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise DiptychError(f"{self.path}: not an index (not an SQLite file)")

    def _check_tables(self) -> None:
        db = self.connection()
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            self.close()
            raise DiptychError(f"{self.path}: an SQLite file, but not an index")
        if version > VERSION:
            self.close()
            raise DiptychError(
                f"{self.path}: made by a newer Diptych (version {version} of the file, this one knows {VERSION})"
            )


def _make(path: Path, layout: Layout) -> None:
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
        if path.exists() and path.stat().st_size == 0:
            os.replace(aside, path)
        with suppress(FileExistsError, FileNotFoundError):
            os.link(aside, path)  # unlike a rename, it fails where another process was first
    finally:
        aside.unlink(missing_ok=True)


class _Handle:
    """A connection that closes itself when its thread is gone."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.process = os.getpid()
        self.thread = threading.current_thread()

    def close(self) -> None:
        """Close it, unless it came over from a parent process: closing that would release the parent's locks."""
        if self.process == os.getpid():
            self.connection.close()


def _explanation(code: int, patience: float) -> str | None:
    return {
        sqlite3.SQLITE_FULL: "the disk is full; nothing of this change was kept",
        sqlite3.SQLITE_IOERR: "the disk cannot be written or read; nothing of this change was kept",
        sqlite3.SQLITE_BUSY: f"another process has been writing to it for more than {patience:g} seconds",
        sqlite3.SQLITE_LOCKED: "another thread is writing to it",
        sqlite3.SQLITE_CORRUPT: "the file is damaged; delete it and index again",
        sqlite3.SQLITE_NOTADB: "not an index, or damaged",
        sqlite3.SQLITE_READONLY: "the file cannot be written",
        sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    }.get(code)
