"""An index brought in step with folders: only what is new or changed is embedded, and committed as it goes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.collection import DataProblem
from diptych.data.photo import COLUMNS
from diptych.data.pictures import PictureFile
from diptych.search.filling.broken import BrokenPictures
from diptych.search.filling.describe import ReadText, describe_entries
from diptych.search.filling.new_entry import NewEntry, Outcome, picture_of
from diptych.search.filling.plan import WHOLE, Metadata, Missing, SyncPlan, make_plan, whole_value
from diptych.search.filling.read_items import read_parts
from diptych.search.filling.seal import digest_read, digest_with, read_of
from diptych.search.filling.skipped import Skipped, skipped_kinds
from diptych.search.filling.walk import PICTURES, Choice, FoundFile
from diptych.search.stores.store import WRITTEN, Description, Entry, Stamp, Store, Value

# What is embedded is committed when so many entries wait for it, or after so many seconds.
COMMIT_ENTRIES, COMMIT_SECONDS = 512, 2.0
AT_ONCE = 500


@dataclass(frozen=True)
class SyncReport:
    """What a run did, in entries, and what it could not read.

    missing: folders of which so much is gone that nothing of them was deleted without being told to
    remembered: how many of the problems are files that were not tried again, since nothing about them has changed
    described: entries that were there, and whose columns were read from their pictures
    skipped: files that were left out, by their endings
    """

    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    seconds: float = 0.0
    problems: tuple[DataProblem, ...] = ()
    missing: tuple[Missing, ...] = ()
    remembered: int = 0
    described: int = 0
    skipped: tuple[Skipped, ...] = ()

    @property
    def nothing_read(self) -> bool:
        """Whether there were files, and none of them could be read."""
        done = self.added + self.changed + self.moved + self.deleted + self.unchanged
        return not done and not self.missing and bool(self.skipped or self.problems)

    @property
    def unread(self) -> int:
        """Files that could be read here if an extra were installed."""
        return sum(kind.count for kind in self.skipped if kind.lacks_extra)

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
        self.failed: list[tuple[Stamp, DataProblem]] = []  # of pictures and videos whose bytes are no good
        self.added = self.changed = self.moved = self.deleted = 0
        self._entries: dict[str, Entry] = {}
        self._same: dict[str, NewEntry] = {}
        self._keys: dict[str, str] = {}  # keys on their way, with the file of parts that they belong to
        self._known: set[str] = set()
        self._given: dict[str, dict[str, Value]] = {}  # columns that were given for entries on their way
        self._files: dict[str, _Parts] = {}
        self._last = time.monotonic()

    def send(self, entry: NewEntry, parts: "_Parts | None" = None) -> NewEntry:
        """Note that an entry is on its way."""
        if parts is not None and entry.key not in self._keys:
            self._keys[entry.key] = parts.file.path
            parts.waiting += 1
        if entry.known:
            self._known.add(entry.key)
        if entry.metadata:
            self._given[entry.key] = entry.metadata
        return entry

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what came back; commit where it is time."""
        for outcome in outcomes:
            if isinstance(outcome, Entry):
                digest = outcome.stamp.digest
                if outcome.kind == "picture":
                    digest = digest_with(digest, self._given.get(outcome.key))
                self._entries[outcome.key] = replace(outcome, stamp=replace(outcome.stamp, digest=digest))
                self.changed += outcome.key in self._known
                self.added += outcome.key not in self._known
                self._arrived(outcome.key)
            elif isinstance(outcome, NewEntry):
                self._same[outcome.key] = outcome
                self._arrived(outcome.key)
            else:
                self.problems.append(outcome.problem)
                if outcome.stamp is not None:
                    self.failed.append((outcome.stamp, outcome.problem))
                if outcome.key in self._known:  # what the index has of it is of another content
                    self.deleted += self.store.delete([outcome.key])
                self._arrived(outcome.key, failed=True)
        full = len(self._entries) + len(self._same) >= COMMIT_ENTRIES
        if full or time.monotonic() - self._last > COMMIT_SECONDS:
            self.commit()

    def _arrived(self, key: str, failed: bool = False) -> None:
        self._known.discard(key)
        self._given.pop(key, None)
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
            stored = self.store.get(list(self._same), locals=False)
            pairs = zip(self._same.values(), stored, strict=True)
            same = [_described(new, old) for new, old in pairs if old is not None and new.key not in self._entries]
            self.store.describe(same)
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
    retry: bool = False,
    read_text: ReadText | None = None,
) -> SyncReport:
    """Bring a store in step with the files below `roots` (absolute paths, none inside another).

    embed: makes the function that embeds, which may take long; asked for only where something needs embedding
    delete: also where all or most of a root is gone, which may only be a disk that is not mounted
    retry: try pictures again that could not be decoded, though nothing about them has changed
    read_text: reads what is written in pictures, also in those that are there already
    """
    started = time.monotonic()
    broken = BrokenPictures(store.properties, roots, retry)
    plan = make_plan(store, roots, choice, metadata, broken)
    writer = Writer(store, choice)
    try:
        counts = plan.counts()
        with progress_bar("entries") as bar:
            task = bar.add_task("indexing", total=counts.waiting, note="")

            def more(parts: int) -> None:
                bar.update(task, total=(bar.tasks[0].total or 0) + parts)

            waiting = _waiting(plan, store, writer, metadata, broken, more)
            first = next(waiting, None)
            if first is not None:
                for outcomes in embed()(chain([first], waiting)):
                    writer.take(outcomes)
                    note = f"{len(writer.problems)} unreadable" if writer.problems else ""
                    bar.update(task, advance=len(outcomes), note=note)
            writer.commit()
            missing = () if delete else plan.missing()
            writer.delete(plan.gone(without=missing))
        for stamp, problem in writer.failed:
            broken.note(stamp, problem)
        broken.keep(store)
        problems = (*plan.problems, *writer.problems)
        described = 0
        if choice.what != "sentences" and (plan.undescribed or read_text is not None):
            described = describe_entries(store, roots, read_text)
    finally:
        plan.close()
    return SyncReport(
        writer.added,
        writer.changed,
        writer.moved,
        writer.deleted,
        plan.unchanged,
        time.monotonic() - started,
        problems,
        missing,
        broken.remembered,
        described,
        skipped_kinds(plan.skipped),
    )


def _waiting(
    plan: SyncPlan,
    store: Store,
    writer: Writer,
    metadata: Metadata,
    broken: BrokenPictures,
    more: Callable[[int], None],
) -> Iterator[NewEntry]:
    """What has to be embedded; moved pictures are renamed on the way."""
    for file, known in plan.waiting():
        if file.kind not in PICTURES:
            more(-1)
            yield from _parts(file, store, writer, broken, more)
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
    key, digest = old
    writer.rename(key, replace(entry.stamp, digest=digest))
    return replace(entry, known=entry.stamp.digest) if entry.metadata else None


def _described(new: NewEntry, old: Entry) -> Description:
    """An entry whose content is as it was: its new stamp, and its columns; those that were once given stay."""
    digest, columns = new.stamp.digest, new.metadata or old.metadata
    if new.kind == "picture":
        before = old.stamp.digest
        digest = digest_read(
            digest_with(digest, new.metadata) if new.metadata else before, read_of(before) + read_of(digest)
        )
        facts = {name: old.metadata[name] for name in (*COLUMNS, WRITTEN) if name in old.metadata}
        columns = {**facts, **new.facts, **columns}
    return Description(replace(new.stamp, key=new.key, digest=digest), columns)


def _parts(
    file: FoundFile, store: Store, writer: Writer, broken: BrokenPictures, more: Callable[[int], None]
) -> Iterator[NewEntry]:
    """The parts of a file that are not in the index as they are now."""
    parts = writer.opened(file)
    pieces = iter(read_parts(file, writer.choice.what))
    while some := list(islice(pieces, AT_ONCE)):
        entries = {piece.key: piece for piece in some if isinstance(piece, NewEntry)}
        remembered = {key: broken.problem_of(key, e.stamp.size, e.stamp.changed) for key, e in entries.items()}
        for piece in [*some, *remembered.values()]:
            if isinstance(piece, DataProblem):
                writer.problems.append(piece)
                parts.failed = True
                if piece.where == file.path:
                    parts.broken = True
                    if file.kind == "video" and _has_bytes(file):
                        writer.failed.append((Stamp(file.path, file.size, file.changed, ""), piece))
        fresh = [
            replace(entry, known="" if old is None else old.stamp.digest)
            for entry, old in zip(entries.values(), store.get(list(entries), locals=False), strict=True)
            if remembered[entry.key] is None and (old is None or not _is_same(entry, old))
        ]
        more(len(fresh))
        for entry in fresh:
            yield writer.send(entry, parts)
    parts.ended = True


def _has_bytes(file: FoundFile) -> bool:
    """Whether a file can be opened; what is wrong with it is then wrong with its content."""
    try:
        with open(file.path, "rb") as opened:
            return len(opened.read(1)) == min(1, file.size)
    except OSError:
        return False


def _is_same(entry: NewEntry, old: Entry) -> bool:
    """Whether the index has an entry as its file is now, and its metadata too."""
    if (entry.stamp.size, entry.stamp.changed) != (old.stamp.size, old.stamp.changed):
        return False
    if isinstance(entry.open, PictureFile) and entry.metadata:
        return digest_with(old.stamp.digest, entry.metadata) == old.stamp.digest
    return True
