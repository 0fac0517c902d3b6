"""Which files may be shown: those that are in the index and lie, links followed, within a folder that was indexed."""

import os
from collections.abc import Iterable, Sequence

from diptych.data.video import clock
from diptych.search.index import Index
from diptych.search.stores.keys import file_of, second_of
from diptych.web.errors import NotFound


class Folders:
    """The folders (and single files) that were indexed."""

    def __init__(self, roots: Iterable[str]) -> None:
        self.roots = sorted({os.path.abspath(root) for root in roots})
        # Without their links, as files are compared with them; those that are not there hold nothing.
        self._real = [os.path.realpath(root) for root in self.roots]

    def resolve(self, key: str) -> str:
        """The file of a key with all links followed; an error where it is outside of every folder, or not there."""
        file = file_of(key)
        real = os.path.realpath(file) if os.path.isabs(file) and "\x00" not in file else ""
        if not real or not any(_within(real, root) for root in self._real) or not os.path.isfile(real):
            raise NotFound("there is no picture to show of this entry")
        return real

    def may_show(self, key: str) -> bool:
        """Whether a key reads like one that can be shown; `resolve` looks at the disk."""
        file = file_of(key)
        return any(_within(file, root) for root in self.roots)

    def shown(self, key: str) -> str:
        """A key as people see it: from the folder that was indexed, without what lies above."""
        file, second = file_of(key), second_of(key)
        part = key[len(file) :] if second is None else f" at {clock(second)}"
        inside = [root for root in self.roots if _within(file, root)]
        if not inside:
            return (os.path.basename(file) if os.path.isabs(file) else file) + part
        root = max(inside, key=len)
        return (os.path.basename(file) if file == root else file[len(root.rstrip(os.sep)) + 1 :]) + part


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def indexed_folders(index: Index, more: Sequence[str] = ()) -> Folders:
    """The folders that an index was filled from, and some more.

    An index that does not remember them, as older ones and those of vectors from elsewhere, has the folders that its
    entries' files lie in.
    """
    known = list(index.roots)
    if not known:
        folders = {os.path.dirname(file_of(stamp.key)) for stamp in index.store.stamps() if os.path.isabs(stamp.key)}
        known = [folder for folder in folders if folder != os.sep]
    return Folders([*known, *more])
