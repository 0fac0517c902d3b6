"""An index brought in step with folders: only what is new or changed is embedded, and committed as it goes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.collection import DataProblem
from diptych.data.pictures import PictureFile
from diptych.search.filling.new_entry import NewEntry, Outcome, picture_of
from diptych.search.filling.plan import WHOLE, Metadata, Missing, SyncPlan, make_plan, metadata_digest, whole_value
from diptych.search.filling.read_items import read_parts
from diptych.search.filling.walk import Choice, FoundFile
from diptych.search.stores.store import Entry, Stamp, Store

# What is embedded is committed when so many entries wait for it, or after so many seconds.
COMMIT_ENTRIES, COMMIT_SECONDS = 512, 2.0
AT_ONCE = 500


@dataclass(frozen=True)
class SyncReport:
    """What a run did, in entries, and what it could not read.

    missing: folders of which so much is gone that nothing of them was deleted without being told to
    """

    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    problems: tuple[DataProblem, ...] = ()
    missing: tuple[Missing, ...] = ()

    @property
    def rate(self) -> float:
        """Entries embedded a second."""
        return (self.added + self.changed) / self.seconds if self.seconds else 0.0


class Writer:
    """Commits outcomes to a store batch by batch, and marks files whose parts are all there."""

    def __init__(self, store: Store, choice: Choice) -> None:
        self.store = store
        self.choice = choice
        self.problems: list[DataProblem] = []
        self.added = self.changed = self.moved = self.deleted = 0
        self._entries: dict[str, Entry] = {}
        self._same: dict[str, NewEntry] = {}
        self._keys: dict[str, str] = {}  # keys on their way, with the file of parts that they belong to
        self._known: set[str] = set()
        self._files: dict[str, _Parts] = {}
        self._last = time.monotonic()

    def send(self, entry: NewEntry, parts: "_Parts | None" = None) -> NewEntry:
        """Note that an entry is on its way."""
        if parts is not None and entry.key not in self._keys:
            self._keys[entry.key] = parts.file.path
            parts.waiting += 1
        if entry.known:
            self._known.add(entry.key)
        return entry

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what came back; commit where it is time."""
        for outcome in outcomes:
            if isinstance(outcome, Entry):
                digest = outcome.stamp.digest
                if outcome.kind == "picture":
                    digest = metadata_digest(digest, outcome.metadata)
                self._entries[outcome.key] = replace(outcome, stamp=replace(outcome.stamp, digest=digest))
                self.changed += outcome.key in self._known
                self.added += outcome.key not in self._known
                self._arrived(outcome.key)
            elif isinstance(outcome, NewEntry):
                self._same[outcome.key] = outcome
                self._arrived(outcome.key)
            else:
                self.problems.append(outcome.problem)
                if outcome.key in self._known:  # what the index has of it is of another content
                    self.deleted += self.store.delete([outcome.key])
                self._arrived(outcome.key, failed=True)
        full = len(self._entries) + len(self._same) >= COMMIT_ENTRIES
        if full or time.monotonic() - self._last > COMMIT_SECONDS:
            self.commit()

    def _arrived(self, key: str, failed: bool = False) -> None:
        self._known.discard(key)
        path = self._keys.pop(key, None)
        if path is not None:
            self._files[path].waiting -= 1
            self._files[path].failed |= failed

    def opened(self, file: FoundFile) -> "_Parts":
        """The parts of a file are coming."""
        self._files[file.path] = parts = _Parts(file)
        return parts

    def commit(self) -> None:
        """Write everything that waits, then mark the files that are whole with it."""
        if self._same:
            stored = self.store.get(list(self._same))
            for new, old in zip(self._same.values(), stored, strict=True):
                if old is not None:
                    metadata = new.metadata or old.metadata
                    digest = metadata_digest(new.stamp.digest, metadata) if new.kind == "picture" else new.stamp.digest
                    stamp = replace(new.stamp, key=new.key, digest=digest)
                    self._entries.setdefault(new.key, replace(old, stamp=stamp, metadata=metadata))
        if self._entries:
            self.store.add(list(self._entries.values()))
        self._entries, self._same = {}, {}
        for path, parts in list(self._files.items()):
            if parts.ended and not parts.waiting:
                self._finish(parts)
                del self._files[path]
        self._last = time.monotonic()

    def _finish(self, parts: "_Parts") -> None:
        """Remove what the file no longer holds; a file without problems need not be read again."""
        file = parts.file
        if not parts.broken:
            stale = [
                s.key for s in self.store.stamps(file.path + "#") if (s.size, s.changed) != (file.size, file.changed)
            ]
            self.delete(stale)
        if not parts.failed:
            self.store.set_properties({WHOLE + file.path: whole_value(file, self.choice)})

    def delete(self, keys: Iterable[str]) -> None:
        """Remove entries, some at a time."""
        iterator = iter(keys)
        while some := list(islice(iterator, AT_ONCE)):
            self.deleted += self.store.delete(some)

    def rename(self, old: str, new: Stamp) -> None:
        """A picture has another path."""
        self.store.rename(old, new)
        self.moved += 1


@dataclass
class _Parts:
    """A file of which parts are being embedded.

    broken: it could not be read to its end, so that nothing is known of what it no longer holds
    """

    file: FoundFile
    waiting: int = 0
    ended: bool = False
    failed: bool = False
    broken: bool = False


Embed = Callable[[Iterable[NewEntry]], Iterator[list[Outcome]]]


def sync(
    store: Store,
    roots: Sequence[str],
    embed: Callable[[], Embed],
    choice: Choice,
    metadata: Metadata,
    delete: bool = False,
) -> SyncReport:
    """Bring a store in step with the files below `roots` (absolute paths, none inside another).

    embed: makes the function that embeds, which may take long; asked for only where something needs embedding
    delete: also where all or most of a root is gone, which may only be a disk that is not mounted
    """
    started = time.monotonic()
    plan = make_plan(store, roots, choice, metadata)
    writer = Writer(store, choice)
    try:
        counts = plan.counts()
        with progress_bar("entries") as bar:
            task = bar.add_task("indexing", total=counts.waiting, note="")

            def more(parts: int) -> None:
                bar.update(task, total=(bar.tasks[0].total or 0) + parts)

            waiting = _waiting(plan, store, writer, metadata, more)
            first = next(waiting, None)
            if first is not None:
                for outcomes in embed()(chain([first], waiting)):
                    writer.take(outcomes)
                    note = f"{len(writer.problems)} unreadable" if writer.problems else ""
                    bar.update(task, advance=len(outcomes), note=note)
            writer.commit()
            missing = () if delete else plan.missing()
            writer.delete(plan.gone(without=missing))
        problems = (*plan.problems, *writer.problems)
    finally:
        plan.close()
    seconds = time.monotonic() - started
    return SyncReport(
        writer.added, writer.changed, writer.moved, writer.deleted, plan.unchanged, seconds, problems, missing
    )


def _waiting(
    plan: SyncPlan, store: Store, writer: Writer, metadata: Metadata, more: Callable[[int], None]
) -> Iterator[NewEntry]:
    """What has to be embedded; moved pictures are renamed on the way."""
    for file, known in plan.waiting():
        if file.kind in ("sentences", "archive"):
            more(-1)
            yield from _parts(file, store, writer, more)
            continue
        entry = picture_of(file, metadata.get(file.path), known)
        if not known and plan.may_have_moved(file.size):
            moved = _moved(entry, plan, writer)
            if moved is None:
                continue
            entry = moved
        yield writer.send(entry)


def _moved(entry: NewEntry, plan: SyncPlan, writer: Writer) -> NewEntry | None:
    """None where the picture was only moved; else the entry, which must be looked at."""
    try:
        entry = entry.with_digest()
    except DiptychError:
        return entry  # the pipeline will say what is wrong with it
    old = plan.take_moved(entry.stamp.size, entry.stamp.digest)
    if old is None:
        return entry
    writer.rename(old, entry.stamp)
    return replace(entry, known=entry.stamp.digest) if entry.metadata else None


def _parts(file: FoundFile, store: Store, writer: Writer, more: Callable[[int], None]) -> Iterator[NewEntry]:
    """The parts of a file that are not in the index as they are now."""
    parts = writer.opened(file)
    pieces = iter(read_parts(file, writer.choice.what))
    while some := list(islice(pieces, AT_ONCE)):
        entries = {piece.key: piece for piece in some if isinstance(piece, NewEntry)}
        for piece in some:
            if isinstance(piece, DataProblem):
                writer.problems.append(piece)
                parts.failed = True
                parts.broken |= piece.where == file.path
        fresh = [
            replace(entry, known="" if old is None else old.stamp.digest)
            for entry, old in zip(entries.values(), store.get(list(entries), locals=False), strict=True)
            if old is None or not _is_same(entry, old)
        ]
        more(len(fresh))
        for entry in fresh:
            yield writer.send(entry, parts)
    parts.ended = True


def _is_same(entry: NewEntry, old: Entry) -> bool:
    """Whether the index has an entry as its file is now, and its metadata too."""
    if (entry.stamp.size, entry.stamp.changed) != (old.stamp.size, old.stamp.changed):
        return False
    if isinstance(entry.open, PictureFile):
        return metadata_digest(old.stamp.digest, entry.metadata or old.metadata) == old.stamp.digest
    return True
