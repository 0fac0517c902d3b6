"""Pictures that cannot be decoded, remembered in the store: one of them must not cost the loading of a model each time.

A picture, or a video, is tried again when its file changes, and when what reads it does: Diptych, Pillow, the decoder
of its kind, or the most pixels that are decoded. One whose bytes could not even be read is not remembered: its disk or
its rights may be mended, and nothing would show it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import PIL

import diptych
from diptych.data.collection import DataProblem
from diptych.data.pictures import most_pixels
from diptych.search.filling.walk import FileKind, file_kind, prefix_of
from diptych.search.stores.keys import file_of
from diptych.search.stores.store import Stamp, Store

# A store's property of this name says what was wrong with a picture: its size and time, what read it, and the words.
BROKEN = "broken:"
# Packages that decode what Pillow does not.
DECODERS: dict[FileKind, str] = {"heic": "pillow-heif", "raw": "rawpy", "video": "av"}


class BrokenPictures:
    """What is remembered below some roots.

    retry: try all of them again
    """

    def __init__(self, properties: Mapping[str, str], roots: Sequence[str], retry: bool = False) -> None:
        prefixes = tuple(map(prefix_of, roots))
        keys = (name.removeprefix(BROKEN) for name in properties if name.startswith(BROKEN))
        self._known = {key: properties[BROKEN + key] for key in keys if _below(key, roots, prefixes)}
        self._retry = retry
        self._still: set[str] = set()
        self._new: dict[str, str] = {}

    @property
    def remembered(self) -> int:
        """How many were not tried, since nothing about them has changed."""
        return len(self._still)

    def problem_of(self, key: str, size: int, changed: int) -> DataProblem | None:
        """What was wrong with a picture that is still as it was; None where it must be looked at."""
        if self._retry or key not in self._known:
            return None
        *tried, where, what = json.loads(self._known[key])
        if tried != [size, changed, _reader(key)]:
            return None
        self._still.add(key)
        return DataProblem(where, what)

    def note(self, stamp: Stamp, problem: DataProblem) -> None:
        """A picture was read and could not be decoded."""
        told = [stamp.size, stamp.changed, _reader(stamp.key), problem.where, problem.what]
        self._new[BROKEN + stamp.key] = json.dumps(told, ensure_ascii=False)

    def keep(self, store: Store) -> None:
        """Write down what is new; forget what was mended or is gone."""
        if self._new:
            store.set_properties(self._new)
        over = [name for name in (BROKEN + key for key in self._known.keys() - self._still) if name not in self._new]
        if over:
            store.delete_properties(over)


def broken_keys(properties: Iterable[str]) -> list[str]:
    """The keys of all pictures that are remembered, from the names of a store's properties."""
    return [name.removeprefix(BROKEN) for name in properties if name.startswith(BROKEN)]


def _reader(key: str) -> str:
    """What decodes an entry here, as it is now."""
    package = DECODERS.get(file_kind(file_of(key)) or "picture")
    told = f"diptych {diptych.__version__}, Pillow {PIL.__version__}, {most_pixels()} pixels"
    return told if package is None else f"{told}, {package} {_version(package)}"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _below(key: str, roots: Sequence[str], prefixes: tuple[str, ...]) -> bool:
    return file_of(key) in roots or key.startswith(tuple(p for p in prefixes if p not in roots))
