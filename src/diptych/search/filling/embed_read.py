"""The items of a part, read from wherever they are."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.read_ahead import in_order
from diptych.data.collection import DataProblem
from diptych.data.pictures import PictureBytes
from diptych.search.filling.embed_plan import PlanPart
from diptych.search.filling.new_entry import NewEntry, Piece, picture_of
from diptych.search.filling.read_items import read_parts
from diptych.search.filling.remote import NotThere, fetch_bytes, filesystem, is_url, local_copy
from diptych.search.filling.walk import PICTURES, FoundFile, What
from diptych.search.stores.store import Stamp

# Objects that are fetched at a time, and how many may wait for the model.
FETCHING, FETCHED = 16, 64
_CHANGED = "has changed since the plan was made"


class OpenedPart:
    """A part that can be read; a tar, video or text of an object store is on this machine's disk until it is closed."""

    def __init__(self, part: PlanPart) -> None:
        self.part = part
        self._stack = ExitStack()
        self._copy: Path | None = None
        first = part.files[0]
        if is_url(first.path) and first.kind not in PICTURES and part.rows is None:
            self._copy = self._stack.enter_context(local_copy(first.path))

    def close(self) -> None:
        """Let go of what was copied."""
        self._stack.close()

    def pieces(self, what: What) -> Iterator[Piece]:
        """What is to be embedded, and what cannot be read, each key once."""
        seen: set[str] = set()
        for piece in self._pieces(what):
            if isinstance(piece, NewEntry):
                if piece.key in seen:  # rows of a table may name one picture several times
                    continue
                seen.add(piece.key)
            yield piece

    def told(self, text: str) -> str:
        """A text that may name the copy, as it names what was copied."""
        return text if self._copy is None else text.replace(str(self._copy), self.part.files[0].path)

    def _pieces(self, what: What) -> Iterator[Piece]:
        first = self.part.files[0]
        if first.kind in PICTURES:
            yield from _fetched(self.part) if is_url(first.path) else map(_local_picture, self.part.files)
        elif self.part.rows is not None:
            yield from _rows(first, self.part.rows, what)
        elif self._copy is not None:
            for piece in read_parts(replace(first, path=str(self._copy)), what):
                yield self._renamed(piece) if isinstance(piece, NewEntry) else piece
        else:
            changed = _fault_of(first)
            yield from read_parts(first, what) if changed is None else [changed]

    def _renamed(self, entry: NewEntry) -> NewEntry:
        key = self.told(entry.key)
        columns = {n: self.told(v) if isinstance(v, str) else v for n, v in entry.metadata.items()}
        return replace(entry, key=key, stamp=replace(entry.stamp, key=key), metadata=columns)


def _local_picture(file: FoundFile) -> Piece:
    fault = _fault_of(file)
    return picture_of(file) if fault is None else fault


def _fault_of(file: FoundFile) -> DataProblem | None:
    """Why a file is not what the plan says."""
    try:
        status = os.stat(file.path)
    except OSError as error:
        return DataProblem(file.path, f"cannot be read: {error.strerror}")
    same = (status.st_size, status.st_mtime_ns) == (file.size, file.changed)
    return None if same else DataProblem(file.path, _CHANGED)


def _fetched(part: PlanPart) -> Iterator[Piece]:
    """Pictures of an object store, some of them ahead of who asks."""
    with closing(in_order(_fetch, part.files, FETCHING, FETCHED)) as pieces:
        yield from pieces


def _fetch(file: FoundFile) -> Piece:
    try:
        data = fetch_bytes(file)
    except NotThere as error:
        return DataProblem(file.path, error.what)
    if len(data) != file.size:
        return DataProblem(file.path, _CHANGED)
    stamp = Stamp(file.path, file.size, file.changed, "")
    return NewEntry(file.path, "picture", stamp, PictureBytes(data, file.path))


def _rows(file: FoundFile, rows: tuple[int, int], what: What) -> Iterator[Piece]:
    """A stretch of a parquet file's rows; of one in an object store only what they need is fetched."""
    if not is_url(file.path):
        changed = _fault_of(file)
        yield from read_parts(file, what, rows) if changed is None else [changed]
        return
    fs, path = filesystem(file.path)
    try:
        with fs.open(path, "rb") as source:
            yield from read_parts(file, what, rows, source)
    except Exception as error:  # each store has errors of its own, and what is out of reach now is not bad
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DiptychError(f"cannot be read: {reason}", where=file.path) from error
