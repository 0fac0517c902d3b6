"""Anything that people have, read into one type: the format is recognised by looking."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Features, Item
from diptych.data.feature_file import is_feature_file
from diptych.data.readers.arrays import ArrayFeatures, ArrayFile, JoinedFeatures
from diptych.data.readers.bottom_up import is_bottom_up, read_bottom_up
from diptych.data.readers.captions import captions_in, read_captions, read_several
from diptych.data.readers.combine import (
    checked_against,
    with_captions,
    with_features,
    with_features_in_order,
    without_wrong_dimension,
)
from diptych.data.readers.faults import Faults, Gathering
from diptych.data.readers.folder import near, picture_files, read_folder
from diptych.data.readers.hdf5 import SUFFIXES as HDF5_SUFFIXES
from diptych.data.readers.hdf5 import read_hdf5
from diptych.data.readers.huggingface import is_huggingface, read_huggingface
from diptych.data.readers.own_feature_files import read_feature_file
from diptych.data.readers.per_image import array_files, read_per_image
from diptych.data.readers.picture_names import split_name
from diptych.data.readers.precomp import is_precomp, read_lines, read_precomp
from diptych.data.readers.tables import SUFFIXES as TABLE_SUFFIXES
from diptych.data.readers.webdataset import SUFFIXES as TAR_SUFFIXES
from diptych.data.readers.webdataset import find_tars, read_webdataset

Source = Path | str
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def read_collection(
    path: Source,
    *,
    images: Source | None = None,
    features: Source | None = None,
    captions: Source | None = None,
    split: str | None = None,
    dev_limit: int | None = None,
    skip_bad: bool = False,
    deep: bool = False,
) -> Collection:
    """Read pictures with their sentences and local features from `path`, whatever its format.

    images: a folder or tars with the pictures, where they are not beside `path`
    features: local features of any format, joined by the pictures' ids or file names
    captions: another captions file; where `path` has captions too, the two must agree
    split: only this one; `dev_limit`: cut the validation split to its first pictures, as everyone does on COCO
    skip_bad: go on without what is bad and list it in `problems`; else the first problem is an error
    deep: also decode every picture and look at every feature
    """
    faults = Faults(skip_bad)
    collection = gather(path, faults, images, features, captions, split, dev_limit)
    if deep:
        from diptych.data.check import check

        checked = check(collection, faults)
        collection = replace(collection, items=checked.good, problems=tuple(faults.problems))
    if not collection.items:
        first = f"; the first problem is {collection.problems[0]}" if collection.problems else ""
        raise DiptychError(f"no picture is left{first}", where=path)
    return collection


def gather(
    path: Source,
    faults: Faults,
    images: Source | None = None,
    features: Source | None = None,
    captions: Source | None = None,
    split: str | None = None,
    dev_limit: int | None = None,
) -> Collection:
    """What `read_collection` does, with the problems told to `faults`; the result may be empty."""
    collection = _read(path, faults, split, look_near=images is None)
    if captions is not None:
        told = read_captions(_existing(captions), faults)
        if any(item.sentences for item in collection.items):
            collection = checked_against(collection, str(path), told, str(captions), faults)
        else:
            what = "picture" if collection.features is None else "features"
            joined = with_captions(told, str(captions), collection, str(path), faults, what=what)
            collection = replace(joined, name=collection.name)
    if images is not None:
        collection = with_captions(collection, str(path), _pictures(_existing(images), faults), str(images), faults)
    if features is not None:
        collection = _attach(collection, _existing(features), faults)
    if split is not None:
        collection = _chosen(collection, split, path, faults)
    if dev_limit is not None:
        collection = _limited(collection, dev_limit)
    return replace(collection, problems=tuple(faults.problems))


def _existing(source: Source) -> Path:
    path = Path(source)
    if not path.exists():
        raise DiptychError("no such file or folder", where=path)
    return path


def _read(source: Source, faults: Faults, split: str | None, look_near: bool) -> Collection:
    path = Path(source)
    if path.is_dir():
        return _read_folder(path, faults, split)
    if path.is_file():
        return _read_file(path, faults, look_near)
    text = str(source)
    if _HUB_NAME.fullmatch(text) and not Path(text.split("/")[0]).exists():
        return read_huggingface(text, faults)
    raise DiptychError("no such file or folder", where=path)


def _read_file(path: Path, faults: Faults, look_near: bool) -> Collection:
    suffix = path.suffix.lower()
    if is_feature_file(path):
        return read_feature_file(path, faults)
    if path.name.lower().endswith(TAR_SUFFIXES):
        return read_webdataset([path], path.stem, faults)
    if suffix in HDF5_SUFFIXES:
        return read_hdf5(path, faults)
    if suffix == ".npy":
        return _read_array(path, faults)
    if is_bottom_up(path):
        return read_bottom_up(path, faults)
    if suffix == ".json" or suffix in TABLE_SUFFIXES:
        collection = read_captions(path, faults)
        return near(collection, path, faults) if look_near else collection
    raise DiptychError(
        "not a format that is known; expected captions (.json, .jsonl, .csv, .tsv, .txt), a .tar, "
        "features (.tsv, .h5, .npy, what `diptych features` writes) or a folder",
        where=path,
    )


def _read_folder(folder: Path, faults: Faults, split: str | None) -> Collection:
    if is_huggingface(folder):
        return read_huggingface(str(folder), faults)
    if is_precomp(folder):
        return read_precomp(folder, faults, split)
    source = _tars_or_features(folder, faults)
    if source is None:
        return read_folder(folder, faults)
    files = captions_in(folder, [], faults)
    if not files:
        return source
    places = " and ".join(str(path) for path, _ in files)
    what = "picture" if source.features is None else "features"
    whole = with_captions(
        read_several(files, faults), places, source, str(folder), faults, every=source.features is None, what=what
    )
    return replace(whole, name=folder.name)


def _tars_or_features(folder: Path, faults: Faults) -> Collection | None:
    """What a folder holds when it is not pictures."""
    tars = find_tars(folder)
    if tars:
        return read_webdataset(tars, folder.name, faults)
    files = sorted(p for p in folder.iterdir() if p.is_file())
    tables = [p for p in files if ".tsv" in p.suffixes and is_bottom_up(p)]
    if tables:
        return _joined(folder, tables, read_bottom_up, faults)
    if picture_files(folder):
        return None
    stores = [p for p in files if p.suffix.lower() in HDF5_SUFFIXES]
    if stores:
        return _joined(folder, stores, read_hdf5, faults)
    return read_per_image(folder, faults) if array_files(folder) else None


def _joined(folder: Path, paths: list[Path], read: Callable[[Path, Faults], Collection], faults: Faults) -> Collection:
    """Several files of features as one."""
    parts = []
    for path in paths:
        with faults.guard(path):
            parts.append(read(path, faults))
    if not parts:
        raise DiptychError(f"none of its {len(paths)} files of features can be read", where=folder)
    kept = without_wrong_dimension([part.features for part in parts if part.features is not None], faults)
    gathering = Gathering(faults, captioned=False)
    start = 0
    for part in parts:
        if part.features is None or not any(part.features is one for one in kept):
            continue
        for item in part.items:
            gathering.add(replace(item, row=start + (item.row or 0)), f"{part.name}: {item.id}")
        start += len(part.features)
    return Collection(folder.name, gathering.items, JoinedFeatures(kept), format=parts[0].format)


def _open_array(path: Path, faults: Faults) -> tuple[Features, list[str] | None]:
    """A npy file of features, and the ids in `NAME_ids.txt` beside it where there is one."""
    features = ArrayFeatures(ArrayFile(path, faults))
    beside = path.with_name(f"{path.stem.removesuffix('_ims')}_ids.txt")
    if not beside.exists():
        return features, None
    ids = read_lines(beside)
    if len(ids) != features.array.shape[0]:
        raise DiptychError(
            f"{len(ids)} ids; expected {features.array.shape[0]}, one a row of {path.name}", where=beside
        )
    return features, ids


def _read_array(path: Path, faults: Faults) -> Collection:
    features, ids = _open_array(path, faults)
    gathering = Gathering(faults, captioned=False)
    for row in range(len(features)):
        gathering.add(Item(str(row) if ids is None else ids[row], (), row=row), f"{path}: row {row}")
    return Collection(path.stem, gathering.items, features, format="npy array")


def _attach(collection: Collection, path: Path, faults: Faults) -> Collection:
    if path.suffix.lower() == ".npy":
        features, ids = _open_array(path, faults)
        if ids is None:
            return with_features_in_order(collection, features, str(path), faults)
    source = _read(path, faults, None, look_near=False)
    if source.features is None:
        raise DiptychError(f"{source.format}: no local features in it", where=path)
    return with_features(collection, source, str(path), faults)


def _pictures(path: Path, faults: Faults) -> Collection:
    tars = find_tars(path)
    if tars:
        return read_webdataset(tars, path.name, faults, captioned=False)
    return read_folder(path, faults, captioned=False)


def _chosen(collection: Collection, split: str, path: Source, faults: Faults) -> Collection:
    wanted = split_name(split)
    if wanted == "restval":
        chosen = [item for item in collection.items if item.metadata.get("source_split") == "restval"]
    else:
        chosen = [item for item in collection.items if item.split in (wanted, split)]
    if not chosen and not faults.problems:
        there = ", ".join(f"{name} ({count})" for name, count in collection.splits.items()) or "nothing"
        raise DiptychError(f"no split {split!r}; there is {there}", where=path)
    return replace(collection, items=chosen)


def _limited(collection: Collection, limit: int) -> Collection:
    """The validation split cut to its first pictures."""
    if limit < 1:
        raise DiptychError(f"dev_limit: expected at least 1, got {limit}")
    kept, seen = [], 0
    for item in collection.items:
        seen += item.split == "val"
        if item.split != "val" or seen <= limit:
            kept.append(item)
    return replace(collection, items=kept)
