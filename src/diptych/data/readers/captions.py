"""Captions files of any kind, alone or several together."""

from collections.abc import Sequence
from pathlib import Path

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.data.readers import coco, karpathy, tables
from diptych.data.readers.bottom_up import is_bottom_up
from diptych.data.readers.combine import union
from diptych.data.readers.faults import Faults
from diptych.data.readers.picture_names import stem


def read_captions(path: Path, faults: Faults) -> Collection:
    """The pictures and sentences of a captions file, or of a folder of such files; no pictures are looked for."""
    if path.is_dir():
        several = captions_in(path, [], faults)
        if not several:
            raise DiptychError("no captions file in it", where=path)
        return read_several(several, faults)
    if path.suffix.lower() != ".json":
        return tables.read_table(path, faults)
    collection = _read_json(path, faults)
    if collection is None:
        raise DiptychError(
            "expected Karpathy's JSON ('images' with 'sentences'), COCO's ('images' and 'annotations'), "
            "a list of {'image', 'caption'} or a map from file name to captions",
            where=path,
        )
    return collection


def _read_json(path: Path, faults: Faults) -> Collection | None:
    data = read_json(path)
    if coco.is_coco(data):
        return coco.read_coco(path, data, faults)
    if karpathy.is_karpathy(data):
        return karpathy.read_karpathy(path, data, faults)
    if tables.is_records(data):
        return tables.read_records(path, data, faults)
    return None


def captions_in(folder: Path, pictures: Sequence[str], faults: Faults) -> list[tuple[Path, Collection]]:
    """The captions files of a folder (and of its `annotations`), each with what it holds.

    pictures: names of the pictures there; a .txt with a picture's name belongs to that picture alone.
    """
    own = {stem(name) for name in pictures}
    files = []
    for place in (folder, folder / "annotations"):
        for path in sorted(place.iterdir()) if place.is_dir() else []:
            with faults.guard(path):
                collection = _captions_or_none(path, own, faults)
                if collection is not None:
                    files.append((path, collection))
    return files


def _captions_or_none(path: Path, own: set[str], faults: Faults) -> Collection | None:
    suffix = path.suffix.lower()
    if not path.is_file() or path.name.startswith("."):
        return None
    if suffix == ".json":
        return None if stem(path.name) in own else _read_json(path, faults)
    if suffix not in tables.SUFFIXES or (suffix == ".tsv" and is_bottom_up(path)):
        return None
    if stem(path.name) in own or not tables.looks_like_captions(path):
        return None
    return tables.read_table(path, faults)


def read_several(files: Sequence[tuple[Path, Collection]], faults: Faults) -> Collection:
    """Several captions files as one: they may complete each other, and must not contradict each other."""
    whole = files[0][1]
    for path, collection in files[1:]:
        whole = union(whole, str(files[0][0]), collection, str(path), faults)
    return whole
