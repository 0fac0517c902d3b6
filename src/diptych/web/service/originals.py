"""The files of pictures as they are: one to download, or several in a zip that is made while it is sent."""

import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from diptych.common.errors import DiptychError
from diptych.search.stores.keys import bytes_of, file_of, holds_pictures, second_of
from diptych.web.errors import NotFound, TooLarge
from diptych.web.service.entries import Entries
from diptych.web.service.folders import Folders

# Most bytes of all files in one zip.
MOST_ZIPPED = 1 << 30
CHUNK = 1 << 18
# Names the files that could not be put in.
MISSING = "not in this zip.txt"


@dataclass(frozen=True)
class Original:
    """A picture as it was indexed: a file of its own, or a part of another.

    name: its path from the folder that was indexed; path: its own file, all links followed; None for a part
    changed: seconds since 1970; size: in bytes
    """

    name: str
    path: str | None
    changed: float
    size: int
    open: Callable[[], BinaryIO]

    @property
    def filename(self) -> str:
        """What a downloaded file is called."""
        return self.name.rpartition("/")[2] or "picture"


class Originals:
    """Original files by the ids of entries; every method may be called by any thread."""

    def __init__(self, entries: Entries, folders: Folders) -> None:
        self._entries = entries
        self._folders = folders

    def get(self, id: str) -> Original:
        """The original of an entry; an error where there is none that may be shown."""
        entry = self._entries.get(id)
        if entry.kind == "sentence":
            raise NotFound("there is no picture of this entry")
        key = entry.key
        real, file = self._folders.resolve(key), file_of(key)
        changed = os.stat(real).st_mtime
        if file != key and holds_pictures(file):
            renamed = real + key[len(file) :]
            if file_of(renamed) != real:  # a link with another ending: no archive any more
                raise NotFound("there is no picture to show of this entry")
            data = bytes_of(renamed)
            name = self._folders.shown(key).replace("#", "/")
            if "." not in name.rpartition("/")[2]:
                name += _ending(data)
            return Original(name, None, changed, len(data), lambda: BytesIO(data))
        # A video's frame is a part of it too; its original is the whole of it.
        return Original(self._folders.shown(file), real, changed, os.stat(real).st_size, lambda: open(real, "rb"))

    def path(self, id: str) -> str:
        """Where the file of an entry is on this machine."""
        key = self._entries.get(id).key
        self._folders.resolve(key)
        return key if second_of(key) is None else file_of(key)

    def several(self, ids: Sequence[str], most: int = MOST_ZIPPED) -> list[Original]:
        """The originals of several entries, each file once; an error where they are too many bytes."""
        found: dict[str, Original] = {}
        total = 0
        for id in dict.fromkeys(ids):
            original = self.get(id)
            if original.path is not None and original.path in found:
                continue
            found[original.path or id] = original
            total += original.size
            if total > most:
                raise TooLarge(f"these pictures have more than {most / 1e6:,.0f} MB together; choose fewer for one zip")
        return list(found.values())


def zipped(originals: Sequence[Original]) -> Iterator[bytes]:
    """A zip of files, piece by piece; what cannot be read any more is named in a text beside the others.

    Nothing is compressed: pictures are already.
    """
    sink, missing = _Sink(), list[str]()
    names = _names(originals)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for original, name in zip(originals, names, strict=True):
            try:
                source = original.open()
            except OSError:
                missing.append(name)
                continue
            info = zipfile.ZipInfo(name, time.localtime(max(original.changed, 315_619_200))[:6])
            with source, archive.open(info, "w", force_zip64=original.size >= 1 << 31) as member:
                left = original.size  # a file that grows meanwhile is cut where it was
                while left and (piece := source.read(min(CHUNK, left))):
                    member.write(piece)
                    left -= len(piece)
                    yield sink.taken()
        if missing:
            archive.writestr(MISSING, "These files cannot be read any more:\n" + "\n".join(missing) + "\n")
    yield sink.taken()


class _Sink:
    """Takes what a zip writes, until it is sent; it cannot be gone back in."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """Nothing is held open."""

    def taken(self) -> bytes:
        data, self._pieces = b"".join(self._pieces), []
        return data


def _names(originals: Sequence[Original]) -> list[str]:
    """A name for each within the zip, no two the same, none that leads out of it."""
    names: dict[str, None] = {}
    for original in originals:
        parts = [part for part in original.name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        plain = "/".join(parts) or "picture"
        stem, ending = os.path.splitext(plain)
        name, number = plain, 2
        while name in names:
            name, number = f"{stem} ({number}){ending}", number + 1
        names[name] = None
    return list(names)


def _ending(data: bytes) -> str:
    """The ending of a picture that has no name of its own."""
    for start, ending in ((b"\xff\xd8", ".jpg"), (b"\x89PNG", ".png"), (b"GIF8", ".gif"), (b"RIFF", ".webp")):
        if data.startswith(start):
            return ending
    raise DiptychError("the picture is in no format that has a common name")
