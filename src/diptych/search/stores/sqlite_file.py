"""The SQLite file of a store: seen to be the same at every look, a connection a thread, errors in plain words."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from diptych.common.errors import DiptychError
from diptych.search.stores.replaced import MADE_WITH, check_replaced, made_with
from diptych.search.stores.sqlite_making import APPLICATION_ID, VERSION, make_file
from diptych.search.stores.store import Layout, StoreReplaced, check_layout


@dataclass(frozen=True)
class _About:
    """What a file says of itself."""

    uid: str
    layout: Layout
    version: int
    made_with: dict[str, str]


class SqliteFile:
    """A store's file, opened or made. Each thread has a connection of its own, closed with it or with the file.

    Every look sees first whether the file is still the one that was opened. One that was made again in its place for
    the same model is opened again; `generation` counts how often. Anything else, or none, is an error.

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
            if path.exists() and not path.is_file() and not path.is_dir():
                raise DiptychError(f"{path}: not a plain file; expected the file of an index")
            if layout is not None and not path.is_dir() and (not path.exists() or path.stat().st_size == 0):
                make_file(path, layout)
            if not path.exists():
                raise DiptychError(f"{path}: no such index")
            self._seen = _signature(path)
            self._about = self._read_about()
        self._generation = 0
        self._made_with = self._about.made_with
        check_layout(self._about.layout, layout, str(path))

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""
        return self._about.layout

    @property
    def uid(self) -> str:
        """Which store it is, in this thread's last look."""
        return self._last.about.uid

    @property
    def checksummed(self) -> bool:
        """Whether checksums are kept in it; files from before version 3 have none."""
        return self._last.about.version >= 3

    @property
    def generation(self) -> int:
        """How often the file had been replaced by this thread's last look."""
        return self._last.generation

    @property
    def _last(self) -> "_Handle":
        if getattr(self._local, "handle", None) is None:
            self.connection()
        handle: _Handle = self._local.handle
        return handle

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, to the file that is there now."""
        while True:
            if self.closed:
                raise DiptychError(f"{self.path}: the store is closed")
            self._look()
            handle: _Handle | None = getattr(self._local, "handle", None)
            if handle is not None and handle.process == os.getpid() and handle.generation == self._generation:
                return handle.connection
            with self._lock:
                generation, about, seen = self._generation, self._about, self._seen
            fresh = _Handle(self._connect(), generation, about)
            with self._lock:
                for ended in [h for h in self._handles if not h.thread.is_alive() or h is handle]:
                    ended.close()
                    self._handles.remove(ended)
                self._handles.append(fresh)
            self._local.handle = fresh
            # What was opened is what was looked at, unless it was replaced in between.
            if _signature(self.path)[:2] == seen[:2]:
                return fresh.connection

    def noted(self, properties: Mapping[str, str]) -> None:
        """Properties were written; those that a file made again must share are kept in mind."""
        self._made_with = {**self._made_with, **made_with(properties)}

    def _look(self) -> None:
        """See that the file is the one that was opened, or open the one that took its place."""
        try:
            seen = _signature(self.path)
            if seen == self._seen:
                return
            with self._lock:
                if seen == self._seen:
                    return
                about = self._read_about()
                # A file of the same inode is another where it was written over.
                if seen[:2] != self._seen[:2] or about.uid != self._about.uid:
                    check_replaced(self.path, self._about.layout, about.layout, self._made_with, about.made_with)
                    self._about = about
                    self._generation += 1
                self._seen = seen
        except FileNotFoundError:
            raise StoreReplaced(
                f"{self.path}: no such index any more: it was deleted or moved while it was open"
            ) from None

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
        # Without this mode SQLite would leave an empty file where there is none.
        address = f"file:{quote(str(self.path.absolute()))}?mode=rw"
        wal = self.path.with_name(self.path.name + "-wal")
        if not os.access(self.path.parent, os.W_OK) and not wal.exists():
            # Where nothing can be written, a write-ahead log cannot be opened, and none is needed.
            address += "&immutable=1"
        db = sqlite3.connect(address, self.patience, isolation_level=None, check_same_thread=False, uri=True)
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cache_size = -32768")
        db.execute("PRAGMA journal_size_limit = 67108864")
        return db

    def _read_about(self) -> _About:
        """What the file says of itself, read over a connection that has seen nothing before."""
        if self.path.is_dir():
            raise DiptychError(f"{self.path}: a folder; expected the file of an index")
        with self.path.open("rb") as file:  # before SQLite touches it
            if file.read(16) != b"SQLite format 3\0":
                raise DiptychError(f"{self.path}: not an index (not an SQLite file)")
        with closing(self._connect()) as db:
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if application != APPLICATION_ID:
                raise DiptychError(f"{self.path}: an SQLite file, but not an index")
            if version > VERSION:
                raise DiptychError(
                    f"{self.path}: made by a newer Diptych (version {version} of the file, this one knows {VERSION})"
                )
            # Version 1 knew one similarity of sets, the default.
            columns = "uid, dim, set_size, alpha" + (", similarity" if version > 1 else "")
            row = db.execute(f"SELECT {columns} FROM store").fetchone()
            marks = ",".join("?" * len(MADE_WITH))
            own = dict(db.execute(f"SELECT name, value FROM properties WHERE name IN ({marks})", MADE_WITH))
        try:
            uid, *sizes = row
            return _About(uid, Layout(*sizes), version, own)
        except (TypeError, ValueError) as error:
            raise DiptychError(f"damaged: what it was made for cannot be read: {error}", where=self.path) from None


def _signature(path: Path) -> tuple[int, int, int, int]:
    """Which file there is, and what changes when it is written."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class _Handle:
    """A connection that closes itself when its thread is gone."""

    def __init__(self, connection: sqlite3.Connection, generation: int, about: _About) -> None:
        self.connection = connection
        self.generation = generation
        self.about = about
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
