"""`*_precomp` folders: {train,dev,test,testall}_ims.npy, _caps.txt and, if there, _ids.txt."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Features, Item
from diptych.data.readers.arrays import ArrayFeatures, ArrayFile, JoinedFeatures
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import split_name

_ORDER = ("train", "restval", "dev", "val", "test", "testall")
_BOXES = ("boxes", "ims_bbx", "bbx", "ims_boxes")
_SIZES = ("ims_size", "sizes", "img_sizes")


def is_precomp(folder: Path) -> bool:
    """Whether a folder has files of this format."""
    return any(folder.glob("*_ims.npy")) or any(folder.glob("*_caps.txt"))


def read_precomp(folder: Path, faults: Faults, split: str | None = None) -> Collection:
    """The splits of a folder, or the one that is asked for; `dev` becomes `val`.

    Where rows and captions are equal in number and rows come in equal runs, each picture is repeated once a caption
    and every run counts once; else captions are divided evenly over the rows.
    """
    names = {p.name.removesuffix("_ims.npy") for p in folder.glob("*_ims.npy")}
    with_arrays = bool(names)
    names |= {p.name.removesuffix("_caps.txt") for p in folder.glob("*_caps.txt")}
    ordered = sorted(names, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))
    if split is not None:
        chosen = [name for name in ordered if split_name(split) in (split_name(name), name)]
        if not chosen:
            raise DiptychError(f"no split {split!r}; there is {', '.join(ordered)}", where=folder)
        ordered = chosen
    filenames = _filenames(folder)
    gathering = Gathering(faults)
    parts: list[Features] = []
    start = 0
    for name in ordered:
        with faults.guard(folder / f"{name}_ims.npy"):
            part = _read_split(folder, name, with_arrays, start, filenames, gathering, parts[0] if parts else None)
            if part is not None:
                parts.append(part)
                start += len(part)
    features = JoinedFeatures(parts) if parts else None
    return Collection(folder.name, gathering.items, features, format="precomp folder")


def _read_split(
    folder: Path,
    name: str,
    with_arrays: bool,
    start: int,
    filenames: dict[str, str],
    gathering: Gathering,
    before: Features | None,
) -> Features | None:
    faults, captions_path = gathering.faults, folder / f"{name}_caps.txt"
    captions = read_lines(captions_path)
    if not captions:
        raise DiptychError("no captions in it", where=captions_path)
    ids_path = folder / f"{name}_ids.txt"
    ids = read_lines(ids_path) if ids_path.exists() else None
    array = ArrayFile(folder / f"{name}_ims.npy", faults) if with_arrays else None
    stride, pictures = _convention(captions_path, captions, array, ids)
    each = len(captions) // pictures
    features = None
    if array is not None:
        boxes = _beside(folder, name, _BOXES, array, stride, faults)
        sizes = _beside(folder, name, _SIZES, array, stride, faults)
        features = ArrayFeatures(array, stride, boxes, sizes)
        if before is not None and before.dim != features.dim:
            raise DiptychError(
                f"vectors of dimension {features.dim}; expected {before.dim} as in the other splits", where=array.path
            )
    names = _names(ids_path, ids, name, pictures, len(captions))
    split, metadata = split_name(name), {}
    if split == "restval":
        split, metadata = "train", {"source_split": "restval"}
    for i in range(pictures if features is None else min(pictures, len(features))):
        sentences = []
        for j in range(i * each, (i + 1) * each):
            kept = caption(captions[j], f"{names[i]}#{j - i * each}", f"{captions_path}: line {j + 1}", faults)
            if kept is not None:
                sentences.append(kept)
        about = {**metadata, "filename": filenames[names[i]]} if names[i] in filenames else metadata
        row = None if features is None else start + i
        where = f"{ids_path}: line {i + 1}" if ids else f"{captions_path}: line {i * each + 1}"
        gathering.add(Item(names[i], tuple(sentences), split, row=row, metadata=about), where)
    return features


def _convention(path: Path, captions: list[str], array: ArrayFile | None, ids: list[str] | None) -> tuple[int, int]:
    """How many rows of the array a picture takes, and how many pictures there are."""
    count = len(captions)
    if array is None:
        pictures = len(dict.fromkeys(ids)) if ids else count // 5
        if not pictures or count % pictures or (ids is None and count % 5):
            raise DiptychError(f"{count} captions do not divide by {pictures if ids else 'five'} a picture", where=path)
        return 1, pictures
    rows = array.shape[0]
    if rows == count:
        run = _run(array)
        if count % run:
            raise DiptychError(
                f"{count} captions do not divide by {run}, the times that {array.path.name} repeats a picture",
                where=path,
            )
        return run, count // run
    if rows == 0 or count % rows:
        raise DiptychError(
            f"{count} captions do not divide by the {rows} rows of {array.path.name}; "
            "expected as many captions for every picture",
            where=path,
        )
    return 1, rows


def _run(array: ArrayFile) -> int:
    """How often the array repeats each picture: five, or the length of the first run of equal rows."""
    if array.rows == 0:
        return 5
    for length in (5, *range(10, 1, -1)):
        starts = {0, array.rows // length // 2 * length, (array.rows // length - 1) * length}
        if array.rows >= length and all(
            np.array_equal(array[s], array[s + i], equal_nan=True) for s in starts for i in range(1, length)
        ):
            return length
    return 1


def _names(path: Path, ids: list[str] | None, split: str, pictures: int, captions: int) -> list[str]:
    """The pictures' ids; where a file has none, or counts from 0, the split and the position."""
    positions = [str(i) for i in range(pictures)]
    if ids is not None and len(ids) not in (pictures, captions):
        raise DiptychError(
            f"{len(ids)} ids; expected {pictures}, one a picture, or {captions}, one a caption", where=path
        )
    if ids is None:
        return [f"{split}/{i}" for i in positions]
    each = len(ids) // pictures
    chosen = ids[::each]
    for i, id in enumerate(ids):
        if id != chosen[i // each]:
            raise DiptychError(
                f"line {i + 1}: {id!r}; expected {chosen[i // each]!r}, {each} times in a row", where=path
            )
    return [f"{split}/{i}" for i in positions] if chosen == positions else chosen


def _beside(
    folder: Path, name: str, kinds: Sequence[str], array: ArrayFile, stride: int, faults: Faults
) -> ArrayFile | None:
    path = next((p for kind in kinds if (p := folder / f"{name}_{kind}.npy").exists()), None)
    if path is None:
        return None
    beside = ArrayFile(path, faults)
    if beside.rows not in (array.shape[0], array.shape[0] // stride):
        raise DiptychError(f"{beside.rows} rows; expected {array.shape[0]} as in {array.path.name}", where=path)
    return beside


def _filenames(folder: Path) -> dict[str, str]:
    path = folder / "id_mapping.json"
    data = read_json(path) if path.exists() else {}
    return {str(k): v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; only a line feed ends a line, since captions may hold other separators."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise DiptychError("no such file", where=path) from None
    except UnicodeDecodeError as error:
        raise DiptychError(f"not valid UTF-8: {error.reason} at byte {error.start}", where=path) from None
    lines = [line.strip() for line in text.split("\n")]
    return lines[:-1] if lines and not lines[-1] else lines
