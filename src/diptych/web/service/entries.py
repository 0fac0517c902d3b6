"""What ids of the outside stand for: entries of the index, their pictures, and uploads."""

import os

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Open
from diptych.search.index import Index
from diptych.search.stores.keys import second_of
from diptych.search.stores.store import Entry
from diptych.web.errors import NotFound
from diptych.web.service.folders import Folders
from diptych.web.service.ids import Ids
from diptych.web.service.pictures import SIZES, jpeg_of, opener
from diptych.web.service.recent import Recent
from diptych.web.service.uploads import KeepsUploads, is_upload

# What browsers are told that videos are; nothing that they would run.
VIDEO_TYPES = {
    ".3gp": "video/3gpp", ".avi": "video/x-msvideo", ".m2ts": "video/mp2t", ".m4v": "video/mp4",
    ".mkv": "video/x-matroska", ".mov": "video/quicktime", ".mp4": "video/mp4", ".mpeg": "video/mpeg",
    ".mpg": "video/mpeg", ".mts": "video/mp2t", ".ogv": "video/ogg", ".webm": "video/webm", ".wmv": "video/x-ms-wmv",
}  # fmt: skip


class Entries:
    """Entries and uploads by their ids; every method may be called by any thread."""

    def __init__(self, index: Index, ids: Ids, folders: Folders, uploads: KeepsUploads) -> None:
        self.index = index
        self.ids = ids
        self.folders = folders
        self.uploads = uploads
        self._thumbnails: Recent[bytes] = Recent(64 << 20, 20_000)

    def get(self, id: str, locals: bool = False) -> Entry:
        """The entry of an id; an error where there is none."""
        key = self.ids.key(id)
        entry = None if key is None else self.index.store.get([key], locals=locals)[0]
        if entry is None:
            raise NotFound("there is no entry with this id")
        return entry

    def term_value(self, id: str) -> object:
        """What an id of a query stands for: an upload, a sentence, a picture, or what is left of one."""
        if is_upload(id):
            return self.uploads.get(id)
        entry = self.get(id)
        if entry.kind == "sentence":
            return entry.text
        try:
            return opener(entry.key, self.folders.resolve)
        except NotFound:
            return entry.vectors  # the file is gone, or must not be read; its vectors are still here

    def picture(self, id: str) -> Image.Image | Open:
        """The picture of an upload, or what decodes that of an entry."""
        if is_upload(id):
            return self.uploads.get(id)
        entry = self.get(id)
        if entry.kind != "picture":
            raise DiptychError("id: expected a picture's")
        return opener(entry.key, self.folders.resolve)

    def thumbnail(self, id: str, size: str) -> bytes:
        """A JPEG of an entry or an upload; size: one of `SIZES`."""
        if size not in SIZES:
            raise DiptychError(f"size: expected one of {', '.join(SIZES)}")
        if is_upload(id):
            return jpeg_of(self.uploads.get(id).copy, size)
        entry = self.get(id)
        if entry.kind != "picture":
            raise NotFound("there is no picture to show of this entry")
        source = opener(entry.key, self.folders.resolve)
        name = (entry.key, entry.stamp, size)
        data = self._thumbnails.get(name)
        if data is None:
            try:
                data = jpeg_of(source, size)
            except DiptychError:
                raise NotFound("the picture of this entry cannot be read any more") from None
            self._thumbnails.put(name, data, len(data))
        return data

    def media(self, id: str) -> tuple[str, str]:
        """The file of the video that an entry is a frame of, and its type; an error for anything else."""
        entry = self.get(id)
        if second_of(entry.key) is None:
            raise NotFound("this entry is no frame of a video")
        real = self.folders.resolve(entry.key)
        kind = VIDEO_TYPES.get(os.path.splitext(real)[1].lower())
        if kind is None:  # a link with another ending
            raise NotFound("there is no video to show of this entry")
        return real, kind

    def second(self, id: str) -> float | None:
        """The second of a video that an entry is a frame of; None for anything else."""
        key = self.ids.key(id)
        return None if key is None else second_of(key)

    def version(self, id: str) -> object:
        """What is another where the picture of an id is another."""
        return id if is_upload(id) else (id, self.get(id).stamp)

    def may_show(self, id: str) -> bool:
        """Whether an id reads like one with a picture to show."""
        key = self.ids.key(id)
        return is_upload(id) or (key is not None and self.folders.may_show(key))

    def shown_path(self, id: str) -> str | None:
        """The path of an entry as it is shown; None where the id is no entry's."""
        key = self.ids.key(id)
        return None if key is None else self.folders.shown(key)
