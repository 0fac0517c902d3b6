"""What has to be done to bring an index in step with folders: found by one walk, kept in a temporary file."""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from diptych.data.collection import DataProblem
from diptych.search.filling.broken import BrokenPictures
from diptych.search.filling.seal import READ, content_of, digest_with, read_of
from diptych.search.filling.skipped import can_be_read
from diptych.search.filling.walk import PICTURES, Choice, FoundFile, ending_of, file_kind, prefix_of, walk
from diptych.search.stores.keys import file_of
from diptych.search.stores.store import Stamp, Store, Value

# A store's property of this name says that all parts of a file are in it: its size, time and what was wanted of it.
WHOLE = "whole:"
# So many files of a folder may go at once without a question, however few are left.
HANDFUL = 5
Metadata = Mapping[str, dict[str, Value]]


@dataclass(frozen=True)
class Counts:
    """How many files need work, and how many are as they were."""

    waiting: int
    unchanged: int
    gone: int


@dataclass(frozen=True)
class Missing:
    """A folder of which so much is gone that it may only be out of reach: a disk that is not mounted, a mistyped path.

    gone: files that the index knows and that are not there
    known: files that the index knows
    """

    root: str
    gone: int
    known: int

    def __str__(self) -> str:
        which = "all" if self.gone == self.known else f"{self.gone:,} of"
        return f"{self.root}: {which} {self.known:,} files that the index knows are gone"


class SyncPlan:
    """Files to read and entries that lost their file. In a temporary database, so that its size costs no memory."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE waiting (path TEXT, kind TEXT, size INTEGER, changed INTEGER, known TEXT)")
        self._db.execute(
            "CREATE TABLE gone (key TEXT PRIMARY KEY, size INTEGER, digest TEXT, root TEXT, path TEXT) WITHOUT ROWID"
        )
        self._db.execute("CREATE INDEX gone_by_size ON gone (size)")
        self.problems: list[DataProblem] = []
        self.skipped: Counter[str] = Counter()
        self.unchanged = 0
        self.undescribed = 0  # unchanged pictures that were never asked what they say of themselves
        self.known: dict[str, int] = {}  # files that the index has of each root

    def wait(self, file: FoundFile, known: str = "") -> None:
        """A file has to be read; `known` is the digest that the index has of it."""
        row = (file.path, file.kind, file.size, file.changed, known)
        self._db.execute("INSERT INTO waiting VALUES (?, ?, ?, ?, ?)", row)

    def lose(self, stamp: Stamp, root: str, path: str) -> None:
        """An entry's file is not there any more."""
        row = (stamp.key, stamp.size, stamp.digest, root, path)
        self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?, ?, ?, ?)", row)

    def waiting(self) -> Iterator[tuple[FoundFile, str]]:
        """The files to read, with what is known of them."""
        for path, kind, size, changed, known in self._db.execute("SELECT * FROM waiting ORDER BY rowid"):
            yield FoundFile(path, kind, size, changed), known

    def may_have_moved(self, size: int) -> bool:
        """Whether a picture of this size in bytes lost its file."""
        return self._db.execute("SELECT 1 FROM gone WHERE size = ? LIMIT 1", (size,)).fetchone() is not None

    def take_moved(self, size: int, digest: str) -> tuple[str, str] | None:
        """Key and digest of an entry with this content that lost its file; it is no longer among the lost ones."""
        rows = self._db.execute("SELECT key, digest FROM gone WHERE size = ?", (size,)).fetchall()
        moved: tuple[str, str] | None = next(((k, d) for k, d in rows if content_of(d) == digest), None)
        if moved is not None:
            self._db.execute("DELETE FROM gone WHERE key = ?", moved[:1])
        return moved

    def gone(self, without: Sequence[Missing] = ()) -> Iterator[str]:
        """The keys of entries that lost their file, without those of some roots."""
        left_out = {missing.root for missing in without}
        for key, root in self._db.execute("SELECT key, root FROM gone ORDER BY key"):
            if root not in left_out:
                yield key

    def missing(self) -> tuple[Missing, ...]:
        """The roots of which all is gone, or most and more than a handful; what was found elsewhere is not."""
        rows = self._db.execute("SELECT root, count(DISTINCT path) FROM gone GROUP BY root ORDER BY root").fetchall()
        lost = (Missing(root, gone, self.known[root]) for root, gone in rows)
        return tuple(m for m in lost if m.gone == m.known or (m.gone > HANDFUL and 2 * m.gone > m.known))

    def counts(self) -> Counts:
        """How much there is to do."""
        waiting = self._db.execute("SELECT count(*) FROM waiting").fetchone()[0]
        gone = self._db.execute("SELECT count(*) FROM gone").fetchone()[0]
        return Counts(waiting, self.unchanged, gone)

    def close(self) -> None:
        """Let go of the temporary file."""
        self._db.close()


def make_plan(
    store: Store, roots: Sequence[str], choice: Choice, metadata: Metadata, broken: BrokenPictures
) -> SyncPlan:
    """Compare the files below `roots` with what the index has of them: both come in the order of their keys."""
    plan = SyncPlan()
    properties = store.properties
    for root in roots:
        unreadable: list[str] = []
        walked = walk(root, choice, plan.problems, unreadable, plan.skipped, store.address)
        stored = _counted(_stored(store, root, choice), plan.known, root)
        plan.known[root] = 0
        file, entry = next(walked, None), next(stored, None)
        while file is not None or entry is not None:
            if file is not None and not can_be_read(file.kind):
                plan.skipped[ending_of(file.path)] += 1
                if entry is not None and entry.order == file.order:  # it could be read once, and stays
                    plan.unchanged += 1
                    entry = next(stored, None)
                file = next(walked, None)
            elif entry is None or (file is not None and file.order < entry.order):
                assert file is not None
                problem = broken.problem_of(file.path, file.size, file.changed)
                if problem is None:
                    plan.wait(file)
                else:
                    plan.problems.append(problem)
                file = next(walked, None)
            elif file is None or entry.order < file.order:
                if not entry.path.startswith(tuple(unreadable)):
                    _lose(plan, store, root, entry)
                entry = next(stored, None)
            else:
                problem = broken.problem_of(file.path, file.size, file.changed) if file.kind == "video" else None
                if problem is not None:  # what the index has is of an older content, and all that there is
                    plan.problems.append(problem)
                    plan.unchanged += 1
                elif entry.same(file, properties, choice, metadata):
                    plan.unchanged += 1
                    plan.undescribed += file.kind in PICTURES and READ not in read_of(entry.first.digest)
                else:
                    plan.wait(file, entry.first.digest if file.kind in PICTURES else "")
                file, entry = next(walked, None), next(stored, None)
    return plan


def whole_value(file: FoundFile, choice: Choice) -> str:
    """What the property of a file whose parts are all in the index says."""
    return json.dumps([file.size, file.changed, choice.what])


@dataclass(frozen=True)
class _Stored:
    """What the index has of one file: the stamp of its first entry."""

    path: str
    first: Stamp

    @property
    def order(self) -> str:
        return self.path if self.path == self.first.key else self.path + "#"

    def same(self, file: FoundFile, properties: dict[str, str], choice: Choice, metadata: Metadata) -> bool:
        """Whether nothing needs to be read again."""
        if file.kind in PICTURES:
            columns = metadata.get(file.path)
            return (self.first.size, self.first.changed) == (file.size, file.changed) and (
                columns is None or digest_with(self.first.digest, columns) == self.first.digest
            )
        return properties.get(WHOLE + file.path) == whole_value(file, choice)


def _stored(store: Store, root: str, choice: Choice) -> Iterator[_Stored]:
    """What the index has below a root of the kinds that are wanted, a file at a time, in key order."""
    is_file = not os.path.isdir(root)
    for path, stamps in groupby(store.stamps(prefix_of(root)), key=lambda stamp: file_of(stamp.key)):
        kind = file_kind(path)
        if (is_file and path != root) or kind is None or not (is_file or choice.wants(kind)):
            continue
        yield _Stored(path, next(stamps))


def _counted(stored: Iterator[_Stored], counts: dict[str, int], root: str) -> Iterator[_Stored]:
    for entry in stored:
        counts[root] += 1
        yield entry


def _lose(plan: SyncPlan, store: Store, root: str, entry: _Stored) -> None:
    if entry.path == entry.first.key:
        plan.lose(entry.first, root, entry.path)
        return
    for stamp in store.stamps(entry.path + "#"):
        plan.lose(stamp, root, entry.path)
