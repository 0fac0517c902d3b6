"""Folders, walked in the order of an index's keys; files known again by size, time and content."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.data.pictures import SUFFIXES as PLAIN_PICTURES
from diptych.data.pictures import PictureBytes, PictureFile, PicturePart
from diptych.data.raw import is_raw
from diptych.data.video import is_video
from diptych.search.stores.keys import file_of

What = Literal["pictures", "sentences", "both"]
FileKind = Literal["picture", "heic", "raw", "video", "sentences", "archive"]
# Kinds of files that are one picture each; of all others the entries are parts.
PICTURES: tuple[FileKind, ...] = ("picture", "heic", "raw")

HEIC = frozenset({".heic", ".heif"})
SENTENCES = frozenset({".txt", ".csv", ".tsv", ".jsonl", ".ndjson"})
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".parquet")
# Folders that programs fill for themselves.
NEVER = frozenset({"@eaDir", "__MACOSX", "__pycache__", "node_modules", "$RECYCLE.BIN", "System Volume Information"})


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file on disk: its absolute path, what it is, its size in bytes and time of change in nanoseconds."""

    path: str
    kind: FileKind
    size: int
    changed: int

    @property
    def order(self) -> str:
        """Where its entries stand among all keys: a picture's at its path, parts after path and #."""
        return self.path if self.kind in PICTURES else self.path + "#"


@dataclass(frozen=True)
class Choice:
    """Which files are wanted.

    what: pictures, sentences or both
    exclude: patterns of names, or of paths below the folder, that are left out
    hidden: also files and folders whose name begins with a dot
    archives: also tars and parquet files within folders; one that is named itself is always read
    """

    what: What = "pictures"
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    archives: bool = False

    def wants(self, kind: FileKind) -> bool:
        """Whether a file of this kind is wanted from within a folder."""
        if kind == "archive":
            return self.archives
        return self.what == "both" or (kind == "sentences") == (self.what == "sentences")

    def leaves_out(self, name: str, below: str) -> bool:
        """Whether a file or folder is left out; `below` is its path below the folder that is walked."""
        if name in NEVER or (name.startswith(".") and not self.hidden):
            return True
        return any(fnmatchcase(name, p) or fnmatchcase(below, p) for p in self.exclude)


def file_kind(name: str) -> FileKind | None:
    """What a file holds, by its name; None for anything that is not indexed."""
    lower = name.lower()
    if lower.endswith(ARCHIVES):
        return "archive"
    suffix = os.path.splitext(lower)[1]
    if suffix in PLAIN_PICTURES:
        return "picture"
    if suffix in HEIC:
        return "heic"
    if is_raw(lower):
        return "raw"
    if is_video(lower):
        return "video"
    return "sentences" if suffix in SENTENCES else None


def ending_of(name: str) -> str:
    """The ending of a file's name in small letters, with its dot; `.tar.gz` is one."""
    lower = os.path.basename(name).lower()
    double = next((ending for ending in ARCHIVES if lower.endswith(ending)), None)
    return double or os.path.splitext(lower)[1].encode("utf-8", "replace").decode()


def roots_of(paths: Sequence[str | Path]) -> list[str]:
    """Absolute paths of folders and files that exist, in order, without those that lie inside another."""
    roots: list[str] = []
    for path in sorted({os.path.abspath(os.path.expanduser(p)) for p in paths}):
        if not os.path.exists(path):
            raise DiptychError(f"{path}: no such file or folder")
        if not any(path.startswith(_as_prefix(root)) for root in roots):
            roots.append(path)
    return roots


def prefix_of(root: str) -> str:
    """What the keys of everything below a folder begin with; of a file, its path."""
    return _as_prefix(root) if os.path.isdir(root) else root


def walk(
    root: str,
    choice: Choice,
    problems: list[DataProblem],
    unreadable: list[str],
    skipped: Counter[str] | None = None,
    index: str = "",
) -> Iterator[FoundFile]:
    """The wanted files below a folder, or a file itself, in the order of their keys.

    Folders that cannot be read are told as problems and added to `unreadable`; files that are not wanted, or of no kind
    that is known, are counted in `skipped` by their ending, save those of the index at the address `index`. Links to
    files are followed, links to folders are not.
    """
    skipped = Counter() if skipped is None else skipped
    if not os.path.isdir(root):
        kind = file_kind(root)
        if kind is None:
            raise DiptychError(
                f"{root}: neither a picture, a video, sentences (txt, csv, jsonl), a tar nor a parquet file"
            )
        status = os.stat(root)
        if not stat.S_ISREG(status.st_mode):
            raise DiptychError(f"{root}: neither a plain file nor a folder")
        yield FoundFile(root, kind, status.st_size, status.st_mtime_ns)
        return
    yield from _walk(root, len(_as_prefix(root)), choice, problems, unreadable, skipped, index)


def is_of_index(path: str, index: str) -> bool:
    """Whether a path is a file of the index at an address: the file itself, or one that SQLite keeps beside it."""
    folder, name = os.path.split(os.path.abspath(index))
    return os.path.dirname(path) == folder and os.path.basename(path).lstrip(".").startswith(name)


def _walk(
    folder: str,
    cut: int,
    choice: Choice,
    problems: list[DataProblem],
    unreadable: list[str],
    skipped: Counter[str],
    index: str,
) -> Iterator[FoundFile]:
    here: list[tuple[str, FileKind | None, os.DirEntry[str]]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if choice.leaves_out(entry.name, entry.path[cut:]):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    here.append((entry.name + "/", None, entry))
                    continue
                kind = file_kind(entry.name)
                if kind is None or not choice.wants(kind):
                    skipped[ending_of(entry.name)] += not (index and is_of_index(entry.path, index))
                    continue
                here.append((entry.name if kind in PICTURES else entry.name + "#", kind, entry))
    except OSError as error:
        problems.append(DataProblem(folder, f"the folder cannot be read: {error.strerror}"))
        unreadable.append(_as_prefix(folder))
        return
    here.sort(key=lambda named: named[0])
    for _, kind, entry in here:
        if kind is None:
            yield from _walk(entry.path, cut, choice, problems, unreadable, skipped, index)
            continue
        what = _fault_of(entry.path)
        if what is not None:
            problems.append(DataProblem(entry.path.encode("utf-8", "replace").decode(), what))
            continue
        try:
            if not entry.is_file():
                continue
            status = entry.stat()
        except OSError as error:
            problems.append(DataProblem(entry.path, f"cannot be read: {error.strerror}"))
            continue
        yield FoundFile(entry.path, kind, status.st_size, status.st_mtime_ns)


def _fault_of(path: str) -> str | None:
    """Why a path cannot be a key, or None."""
    if file_of(path) != path:
        return "the path looks like a part of another file; rename it"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "the name is not valid Unicode; rename it"
    return "the name holds a control character; rename it" if "\x01" in path else None


def _as_prefix(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep


def content_digest(source: object) -> str:
    """A hash of a picture's bytes, wherever they are, or of a sentence."""
    if isinstance(source, PictureFile):
        return _file_digest(source.path)
    if isinstance(source, PicturePart):
        with source.path.open("rb") as file:
            file.seek(source.offset)
            return _digest(file.read(source.size))
    if isinstance(source, PictureBytes):
        return _digest(source.data)
    if isinstance(source, str):
        return _digest(source.encode("utf-8", "surrogatepass"))  # whether it can be kept is the store's to say
    raise TypeError(f"no content known of {type(source).__name__}")


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
