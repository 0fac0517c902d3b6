"""What is to be indexed and has no vectors yet, and what can become of it."""

import hashlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem, Open
from diptych.data.pictures import PictureFile
from diptych.search.filling.walk import FoundFile, content_digest
from diptych.search.stores.store import Entry, Kind, Stamp, Value


@dataclass(frozen=True)
class NewEntry:
    """An entry that has no vectors yet.

    stamp: its digest is empty while the content has not been read
    open: decodes the picture; None for a sentence
    known: the digest of what the index already has under this key; the same content is not embedded again
    metadata: columns that were given for it; facts: columns that it has by itself, read with the picture
    """

    key: str
    kind: Kind
    stamp: Stamp
    open: Open | None = None
    text: str = ""
    metadata: dict[str, Value] = field(default_factory=dict)
    known: str = ""
    facts: dict[str, Value] = field(default_factory=dict)

    def with_digest(self) -> "NewEntry":
        """The same with the hash of its content."""
        if self.stamp.digest:
            return self
        try:
            digest = content_digest(self.text if self.kind == "sentence" else self.open)
        except OSError as error:
            raise DiptychError(f"cannot be read: {error.strerror}", where=self.key) from None
        return replace(self, stamp=replace(self.stamp, digest=digest))


@dataclass(frozen=True)
class Failed:
    """An entry that could not be read.

    stamp: with its digest, where its bytes were read and are no good; None where they could not be read
    """

    key: str
    problem: DataProblem
    stamp: Stamp | None = None


Piece = NewEntry | DataProblem
# What became of a new entry: it comes back as it was, with its digest, where the index has this content already.
Outcome = Entry | NewEntry | Failed


def picture_of(file: FoundFile, metadata: dict[str, Value] | None = None, known: str = "") -> NewEntry:
    """A picture file as an entry to be."""
    stamp = Stamp(file.path, file.size, file.changed, "")
    return NewEntry(file.path, "picture", stamp, PictureFile(Path(file.path)), metadata=metadata or {}, known=known)


def sentence_entry(key: str, text: str, file: FoundFile, metadata: dict[str, Value] | None = None) -> NewEntry:
    """A sentence of a file as an entry to be."""
    stamp = Stamp(key, file.size, file.changed, content_digest(text))
    return NewEntry(key, "sentence", stamp, text=text, metadata=metadata or {})


def held_picture(key: str, image: Image.Image, metadata: dict[str, Value] | None = None) -> NewEntry:
    """A picture in memory as an entry to be."""
    digest = hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()
    return NewEntry(key, "picture", Stamp(key, 0, time.time_ns(), digest), _Held(image), metadata=metadata or {})


def held_sentence(key: str, text: str, metadata: dict[str, Value] | None = None) -> NewEntry:
    """A sentence in memory as an entry to be."""
    stamp = Stamp(key, len(text), time.time_ns(), content_digest(text))
    return NewEntry(key, "sentence", stamp, text=text, metadata=metadata or {})


class _Held:
    """Opens a picture that is in memory already."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image

    def __call__(self) -> Image.Image:
        return self.image
