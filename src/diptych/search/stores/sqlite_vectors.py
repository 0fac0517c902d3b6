"""The vectors of an SQLite store in memory, kept in step with the file, and the two caches beside it."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.files import remove_left_over
from diptych.search.stores.approximate import Approximate
from diptych.search.stores.faiss_library import DamagedApproximate
from diptych.search.stores.settings import APPROXIMATE, MEMORY, VectorSettings
from diptych.search.stores.spilled import float_array
from diptych.search.stores.sqlite_blobs import checksum_column, decoded_vectors
from diptych.search.stores.sqlite_file import SqliteFile
from diptych.search.stores.store import Layout, are_units
from diptych.search.stores.vector_cache import CacheHeader, read_cache, write_cache
from diptych.search.stores.vectors import BLOCK_BYTES, BestRows, Vectors, is_mapped

BYTES_AT_ONCE = 4 << 20
# A store with fewer entries is read in no time without a cache.
CACHE_FROM = 5_000
# The caches are made again when so much of what they hold, or do not hold, has changed; for the vectors also in
# entries, since those that the file beside does not hold are in memory.
CACHE_DRIFT, APPROXIMATE_DRIFT, MOST_IN_MEMORY = 0.1, 0.2, 50_000
# What is read beside the file of vectors may take so many times what a step of a search takes: a quarter of the memory.
PARTS_READ = 4
SPOT_CHECKS = 64


@dataclass(frozen=True)
class _Moment:
    """The vectors as of one state of the file: the highest entry and deletion numbers given out so far.

    generation: how often the file had been replaced by another
    mapped: how many of the vectors are those of the file beside
    """

    generation: int
    vectors: Vectors
    last: int
    deletions: int
    mapped: int = 0


class SqliteVectors:
    """What a store searches: never older than the file, and only what is new is read.

    Beside the file lie its vectors alone, to be mapped into memory, and beyond `exact_up_to` vectors an approximate
    index. Both are made by `prepare`, checked before use, and done without where they are missing, old or damaged.
    What is in neither is read into memory, and beyond the part of it that the settings allow into a file without name.
    """

    def __init__(self, file: SqliteFile, exact_up_to: int, recall_floor: float) -> None:
        self._file = file
        self._exact_up_to = exact_up_to
        self._recall_floor = recall_floor
        self._refreshing = threading.Lock()
        self._moment: _Moment | None = None
        self._cache_file: tuple[int, int] | None = None
        self._distrusted: tuple[int, int] | None = None
        self._approximate: Approximate | None = None
        self._approximate_file: tuple[str, tuple[int, int] | None] | None = None
        self._distrusted_approximate: tuple[int, int] | None = None

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""
        return self._file.layout

    @property
    def cache_path(self) -> Path:
        """The vectors alone, to be mapped into memory."""
        return self._file.path.with_name(self._file.path.name + ".vectors")

    @property
    def approximate_path(self) -> Path:
        """The approximate index."""
        return self._file.path.with_name(self._file.path.name + ".approximate")

    @contextmanager
    def looking(self) -> Iterator[tuple[sqlite3.Connection, Vectors]]:
        """One unchanging view of the file together with exactly its vectors."""
        with ExitStack() as stack:
            # A view taken while no other thread refreshes is never older than the vectors in memory.
            with self._refreshing:
                db = stack.enter_context(self._file.reading())
                moment = self._moment = self._refreshed(db)
            yield db, moment.vectors

    def _refreshed(self, db: sqlite3.Connection) -> _Moment:
        """Bring the vectors in memory to the state of the file, reading only what is new."""
        last, deletions = sequence(db, "entries"), sequence(db, "deletions")
        generation, moment = self._file.generation, self._moment
        if moment is not None and moment.generation != generation:
            moment = None
        if moment is not None and (moment.last, moment.deletions) == (last, deletions):
            return moment
        forgotten = db.execute("SELECT forgotten FROM store").fetchone()[0]
        if moment is None or moment.deletions < forgotten or self._better_mapped(moment):
            cached = self._from_cache(db, forgotten)
            if cached is not None and cached.last <= last and cached.deletions <= deletions:
                fresh = self._brought_forward(db, cached, last, deletions)
                if fresh.vectors.alive == db.execute("SELECT count(*) FROM entries").fetchone()[0]:
                    return fresh
            if moment is None or moment.deletions < forgotten:
                none = replace(Vectors.empty(self.layout), work=self._work(db))
                moment = _Moment(generation, none, 0, deletions)
        return self._brought_forward(db, moment, last, deletions)

    def _better_mapped(self, moment: _Moment) -> bool:
        """Whether much is in memory that a new file of vectors may hold."""
        read = len(moment.vectors) - moment.mapped
        return read > self._most_read(moment.vectors.work) and _signature(self.cache_path) != self._cache_file

    def _brought_forward(self, db: sqlite3.Connection, moment: _Moment, last: int, deletions: int) -> _Moment:
        vectors = moment.vectors
        gone = db.execute("SELECT entry FROM deletions WHERE sequence > ?", (moment.deletions,)).fetchall()
        vectors = vectors.without(np.array(gone, np.int64).reshape(-1))
        count = db.execute("SELECT count(*) FROM entries WHERE id > ?", (moment.last,)).fetchone()[0]
        ids, block = np.empty(count, np.int64), self._room(count, vectors.work)
        filled = 0
        for some_ids, some in self._read(db, moment.last):
            ids[filled : filled + len(some_ids)], block[filled : filled + len(some_ids)] = some_ids, some
            filled += len(some_ids)
        vectors, mapped = vectors.append(ids, block), moment.mapped
        if len(vectors) > 2 * vectors.alive:
            vectors, mapped = self._compacted(vectors), 0
        return _Moment(moment.generation, self._within_memory(vectors), last, deletions, mapped)

    def _within_memory(self, vectors: Vectors) -> Vectors:
        """With what was read little by little in a file as well, once it is more than memory is for."""
        first = next((i for i, part in enumerate(vectors.parts) if not is_mapped(part)), len(vectors.parts))
        held = vectors.parts[first:]
        if sum(part.nbytes for part in held) <= PARTS_READ * vectors.work:
            return vectors
        moved = self._room(sum(map(len, held)), 0)
        start = 0
        for part in held:
            moved[start : start + len(part)] = part
            start += len(part)
        return replace(vectors, parts=(*vectors.parts[:first], moved))

    def _compacted(self, vectors: Vectors) -> Vectors:
        """Without what is gone."""
        kept = np.flatnonzero(~vectors.gone)
        part = self._room(len(kept), vectors.work)
        for start in range(0, len(kept), self._rows_at_once):
            part[start : start + self._rows_at_once] = vectors.take(kept[start : start + self._rows_at_once])
        parts = (part,) if len(kept) else ()
        return replace(vectors, ids=vectors.ids[kept], parts=parts, gone=np.zeros(len(kept), bool))

    def _room(self, count: int, work: int) -> np.ndarray:
        """Room for the vectors of so many entries."""
        shape = (count, self.layout.set_size, self.layout.dim)
        return float_array(shape, PARTS_READ * work, self._file.path.parent)

    @property
    def _rows_at_once(self) -> int:
        """How many entries are read in one step."""
        return max(1, BYTES_AT_ONCE // self._entry_bytes)

    @property
    def _entry_bytes(self) -> int:
        return 4 * self.layout.set_size * self.layout.dim

    def _most_read(self, work: int) -> int:
        """How many entries may lie beside those of the file of vectors before that is made again."""
        return min(MOST_IN_MEMORY, PARTS_READ * work // self._entry_bytes)

    def _settings(self, db: sqlite3.Connection) -> VectorSettings:
        """What the store remembers of how it is to be prepared and searched."""
        found = db.execute("SELECT name, value FROM properties WHERE name IN (?, ?)", (APPROXIMATE, MEMORY))
        try:
            return VectorSettings.of(dict(found))
        except DiptychError as error:
            raise DiptychError(str(error), where=self._file.path) from None

    def _work(self, db: sqlite3.Connection) -> int:
        """Bytes that one step of a search may take: a sixteenth of the memory."""
        return self._settings(db).share(16, BLOCK_BYTES)

    def _read(self, db: sqlite3.Connection, after: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The vectors of all entries with higher numbers: (ids (r,), vectors (r, K, d)), a few megabytes at a time."""
        known = checksum_column(self._file)
        rows = db.execute(f"SELECT entry, data, {known} FROM vectors WHERE entry > ? ORDER BY entry", (after,))
        while some := rows.fetchmany(self._rows_at_once):
            vectors = decoded_vectors(db, self._file.path, self.layout, some)
            yield np.array([row[0] for row in some], np.int64), vectors

    def _from_cache(self, db: sqlite3.Connection, forgotten: int) -> _Moment | None:
        """The vectors of the file beside, where it belongs to this one and a few of them are as they should be."""
        self._cache_file = _signature(self.cache_path)
        if self._cache_file is not None and self._cache_file == self._distrusted:
            return None
        kept = read_cache(self.cache_path, self._file.uid, self.layout)
        if kept is None or kept[0].deletions < forgotten:
            return None
        header, ids, vectors = kept
        for row in np.unique(np.linspace(0, len(ids) - 1, SPOT_CHECKS).astype(int)) if len(ids) else ():
            stored = db.execute("SELECT data FROM vectors WHERE entry = ?", (int(ids[row]),)).fetchone()
            if stored is not None and stored[0] != vectors[row].tobytes():
                return None
        parts = (vectors,) if len(ids) else ()
        there = Vectors(self.layout, ids, parts, np.zeros(len(ids), bool), self._work(db))
        return _Moment(self._file.generation, there, header.last, header.deletions, len(ids))

    def approximate(self, vectors: Vectors) -> Approximate | None:
        """The approximate index, read again when another process has made a new one; None where searches are exact."""
        if vectors.alive * self.layout.set_size <= self._exact_up_to:
            return None
        signature = self._file.uid, _signature(self.approximate_path)
        if signature[1] is not None and signature[1] == self._distrusted_approximate:
            return None
        if signature != self._approximate_file:
            self._approximate = Approximate.load(self.approximate_path, self._file.uid)
            self._approximate_file = signature
        approximate = self._approximate
        return approximate if approximate is not None and approximate.header.usable else None

    def nearly_best(self, approximate: Approximate, vectors: Vectors, queries: np.ndarray, top: int) -> BestRows | None:
        """What the approximate index finds; None where it turns out to be damaged, and it is not used again."""
        try:
            return approximate.search(vectors, queries, top)
        except DamagedApproximate:
            self.distrust_approximate()
            return None

    def prepare(self, queries: np.ndarray | None = None) -> None:
        """Write the file of vectors and, beyond the exact range, the approximate index, where they have drifted."""
        self._prepare_cache()
        with self.looking() as (db, vectors):
            settings = self._settings(db)
        with self._file.explained():
            remove_left_over(self.approximate_path)
            if vectors.alive * self.layout.set_size > self._exact_up_to:
                self._prepare_approximate(replace(vectors, work=settings.share(16, BLOCK_BYTES)), queries, settings)
            else:
                self.approximate_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of memory and mapped files."""
        self._moment = None
        self._approximate = None

    def _prepare_cache(self) -> None:
        """Write the file of vectors from the store, without holding them in memory."""
        remove_left_over(self.cache_path)
        with self._file.reading() as db:
            last, deletions = sequence(db, "entries"), sequence(db, "deletions")
            count = db.execute("SELECT count(*) FROM entries").fetchone()[0]
            kept = read_cache(self.cache_path, self._file.uid, self.layout)
            if kept is not None and kept[0].last <= last and kept[0].deletions <= deletions:
                added = db.execute("SELECT count(*) FROM entries WHERE id > ?", (kept[0].last,)).fetchone()[0]
                changed = added + deletions - kept[0].deletions
                if changed <= min(CACHE_DRIFT * count, self._most_read(self._work(db))):
                    return
            if count < CACHE_FROM:
                return
            sizes = self.layout.dim, self.layout.set_size
            write_cache(self.cache_path, CacheHeader(self._file.uid, *sizes, count, last, deletions), self._read(db, 0))
        with self._file.writing() as db:
            db.execute("DELETE FROM deletions WHERE sequence <= ?", (deletions,))
            db.execute("UPDATE store SET forgotten = max(forgotten, ?)", (deletions,))
        with self._refreshing:
            self._moment = None  # the next look maps the file that was just written

    def _prepare_approximate(self, vectors: Vectors, queries: np.ndarray | None, settings: VectorSettings) -> None:
        kept = Approximate.load(self.approximate_path, self._file.uid)
        distrusted = self._distrusted_approximate is not None
        if kept is not None and kept.header.kind == settings.kind and not distrusted:
            covered = int(np.searchsorted(vectors.ids, kept.header.last, "right"))
            there = covered - int(vectors.gone[:covered].sum())
            changed = (kept.header.count - there) + (vectors.alive - there)
            # With other memory, one that finds too little may find more.
            worth = kept.header.usable or kept.header.memory == settings.memory
            if worth and changed <= APPROXIMATE_DRIFT * kept.header.count:
                return
        Approximate.build(self.approximate_path, vectors, self._file.uid, settings, queries, self._recall_floor)
        self._distrusted_approximate = None

    def trusts(self, vectors: Vectors, best: BestRows) -> bool:
        """Whether what was found has the length that it must have; what was mapped was not looked at before."""
        if not any(map(is_mapped, vectors.parts)):
            return True
        rows = np.unique(best.rows.numpy()[best.scores.numpy() != -np.inf])
        return bool(are_units(vectors.take(rows)).all())

    def distrust(self) -> None:
        """Do without the file of vectors as it is: what is in the store itself is seen to be right when it is read."""
        with self._refreshing:
            self._distrusted = _signature(self.cache_path)
            self._moment = None
            with suppress(OSError):
                self.cache_path.unlink(missing_ok=True)

    def distrust_approximate(self) -> None:
        """Do without the approximate index as it is: searches are exact until it is made again."""
        self._distrusted_approximate = _signature(self.approximate_path)
        self._approximate = None
        with suppress(OSError):
            self.approximate_path.unlink(missing_ok=True)

    def check_caches(self, db: sqlite3.Connection) -> None:
        """Compare the file of vectors with the store, and the approximate index with its checksums, all of them.

        Those that differ are done without.
        """
        approximate = Approximate.load(self.approximate_path, self._file.uid)
        try:
            if approximate is not None:
                approximate.check()
        except DamagedApproximate:
            self.distrust_approximate()
        kept = read_cache(self.cache_path, self._file.uid, self.layout)
        if kept is None:
            return
        _, ids, vectors = kept
        there = Vectors(self.layout, ids, (vectors,) if len(ids) else (), np.zeros(len(ids), bool))
        rows = db.execute("SELECT entry, data FROM vectors ORDER BY entry")
        while some := rows.fetchmany(self._rows_at_once):
            stored = dict(some)
            for row in there.rows_of(np.array(list(stored), np.int64)):
                if stored[int(ids[row])] != vectors[row].tobytes():
                    self.distrust()
                    return


def sequence(db: sqlite3.Connection, table: str) -> int:
    """The highest number that a table has given out; it is never given again."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    if row is not None and not isinstance(row[0], int):
        raise sqlite3.DatabaseError(f"the number of {table} is not a number")
    return int(row[0]) if row else 0


def _signature(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written anew; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
