"""Features and captions as a `*_precomp` folder, which much published code reads: a split an array and a text file."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.files import write_text
from diptych.common.progress import track
from diptych.data.collection import Item
from diptych.data.feature_file import FeatureFile

NAMES = {"val": "dev"}  # what the field calls a split that has another name here


def write_precomp(folder: Path, items: Sequence[Item], features: FeatureFile) -> dict[str, tuple[int, int]]:
    """Write the folder whole or not at all; returns pictures and sentences of each split that was written.

    Of a split: NAME_ims.npy (pictures, regions, f) in single precision, NAME_caps.txt with as many sentences for every
    picture, one after another, NAME_ids.txt with a picture's id a line, NAME_boxes.npy where regions have boxes, and
    NAME_ims_size.npy with width and height.
    """
    if folder.exists():
        raise DiptychError("already there; remove it, or choose another --out", where=folder)
    splits: dict[str, list[Item]] = {}
    for item in items:
        if item.id in features.rows:
            splits.setdefault(item.split, []).append(item)
    counts = {name: _sentences_each(name, part) for name, part in splits.items()}
    _check_regions(features)
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name, part in splits.items():
        _write_split(aside, NAMES.get(name, name), part, features, counts[name])
    os.replace(aside, folder)
    return {NAMES.get(name, name): (len(part), len(part) * counts[name]) for name, part in splits.items()}


def _sentences_each(split: str, items: Sequence[Item]) -> int:
    """How many sentences every picture of a split gets: as many as the picture with the fewest has."""
    fewest = min(items, key=lambda item: len(item.sentences))
    each = len(fewest.sentences)
    if not each:
        raise DiptychError(
            f"the picture {fewest.id!r} has no sentence; a precomp folder needs as many for every picture of a split"
        )
    more = sum(len(item.sentences) > each for item in items)
    if more:
        print(
            f"{split}: {more:,} of {len(items):,} pictures have more than the {each} sentences of {fewest.id!r};"
            f" the first {each} of each are written",
            file=sys.stderr,
        )
    return each


def _check_regions(features: FeatureFile) -> None:
    fewest, most = int(features.lengths.min()), int(features.lengths.max())
    if fewest != most:
        raise DiptychError(
            f"pictures have {fewest} to {most} regions; a precomp folder takes equally many: a grid has, and a "
            "detector with fewer --regions",
            where=features.path,
        )


def _write_split(folder: Path, name: str, items: Sequence[Item], features: FeatureFile, each: int) -> None:
    rows = [features.rows[item.id] for item in items]
    first = features[rows[0]]
    shape = (len(items), *first.vectors.shape)
    vectors = _array(folder / f"{name}_ims.npy", shape)
    sizes = _array(folder / f"{name}_ims_size.npy", (len(items), 2), "<i4")
    boxes = None if first.boxes is None else _array(folder / f"{name}_boxes.npy", (*shape[:2], 4))
    for i, row in enumerate(track(rows, f"writing {name}", unit="pictures")):
        regions = features[row]
        vectors[i], sizes[i] = regions.vectors, regions.size
        if boxes is not None:
            boxes[i] = regions.boxes
    for array in (vectors, sizes, boxes):
        if array is not None:
            array.flush()
    write_text(folder / f"{name}_ids.txt", "".join(f"{_line(item.id)}\n" for item in items))
    captions = [_line(sentence.text) for item in items for sentence in item.sentences[:each]]
    write_text(folder / f"{name}_caps.txt", "".join(f"{caption}\n" for caption in captions))


def _array(path: Path, shape: tuple[int, ...], dtype: str = "<f4") -> Any:
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)


def _line(text: str) -> str:
    """A text that takes one line."""
    return " ".join(text.splitlines()).strip()
