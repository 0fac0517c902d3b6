"""The deep check: every picture decoded, every local feature looked at."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.progress import track
from diptych.data.collection import Collection, DataProblem, Features, Item
from diptych.data.feature_file import FeatureFile
from diptych.data.readers.arrays import place
from diptych.data.readers.faults import Faults


@dataclass(frozen=True)
class Checked:
    """What the deep check saw: the good items, pictures' sizes (width, height), regions a picture, whether boxes."""

    good: list[Item]
    sizes: list[tuple[int, int]] = field(default_factory=list)
    regions: list[int] = field(default_factory=list)
    boxes: int = 0


def check(collection: Collection, faults: Faults, sample: int | None = None) -> Checked:
    """Decode the pictures and scan the features of a collection, or of `sample` items spread evenly over it.

    Items that were not looked at count as good.
    """
    looked = spread(collection.items, sample)
    bad: set[int] = set()
    sizes: list[tuple[int, int]] = []
    for item, result in _decoded([item for item in looked if item.open is not None]):
        if isinstance(result, DataProblem):
            bad.add(id(item))
            faults.tell(result.where, result.what)
        else:
            sizes.append(result)
    regions: list[int] = []
    boxes = 0
    if isinstance(collection.features, FeatureFile) and sample is None:
        with faults.guard(collection.features.path):
            collection.features.verify()
    if collection.features is not None:
        rows = {item.row: item for item in looked if item.row is not None}
        for row, item in track(rows.items(), "looking at features", len(rows), "pictures"):
            counted = _scan(collection.features, row, item.id)
            if isinstance(counted, DataProblem):
                bad.update(id(other) for other in looked if other.row == row)
                faults.tell(counted.where, counted.what)
            else:
                regions.append(counted[0])
                boxes += counted[1]
    return Checked([item for item in collection.items if id(item) not in bad], sizes, regions, boxes)


def spread(items: Sequence[Item], count: int | None) -> list[Item]:
    """At most `count` items, evenly spread; all where no count is given."""
    if count is None or count >= len(items):
        return list(items)
    return [items[int(i)] for i in np.linspace(0, len(items) - 1, count).round()] if count > 0 else []


def _decoded(items: Sequence[Item]) -> Iterator[tuple[Item, tuple[int, int] | DataProblem]]:
    # Pillow decodes outside the interpreter's lock, so threads are enough.
    pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        results = track(pool.map(_decode, items), "decoding pictures", len(items), "pictures")
        yield from zip(items, results, strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _decode(item: Item) -> tuple[int, int] | DataProblem:
    where = item.path or item.id
    try:
        assert item.open is not None
        return item.open().size
    except DiptychError as error:
        return DataProblem(where, error.within(where))


def _scan(features: Features, row: int, name: str) -> tuple[int, bool] | DataProblem:
    """How many regions a row has and whether with boxes, or what is wrong with it."""
    where = f"{place(features, row)} (picture {name!r})"
    try:
        local = features[row]
    except DiptychError as error:
        return DataProblem(where, error.within(place(features, row)))
    except IndexError:
        return DataProblem(where, f"no such row; there are {len(features)}")
    vectors = np.asarray(local.vectors)
    if vectors.ndim != 2 or not len(vectors):
        return DataProblem(where, f"shape {vectors.shape}; expected (regions, {features.dim}) with at least one region")
    if vectors.shape[1] != features.dim:
        return DataProblem(where, f"vectors of dimension {vectors.shape[1]}; expected {features.dim}")
    wrong = ~np.isfinite(vectors)
    if wrong.any():
        region, position = (int(i) for i in np.argwhere(wrong)[0])
        value = vectors[region, position]
        kind = "NaN" if np.isnan(value) else "infinity"
        return DataProblem(where, f"{kind} in region {region} at position {position}, {int(wrong.sum())} such in all")
    if local.boxes is None:
        return len(vectors), False
    boxes = np.asarray(local.boxes)
    if boxes.shape != (len(vectors), 4):
        return DataProblem(where, f"boxes of shape {boxes.shape}; expected ({len(vectors)}, 4)")
    if not np.isfinite(boxes).all():
        return DataProblem(where, "a box is not finite")
    turned = (boxes[:, 2:] < boxes[:, :2]).any(1)
    if turned.any():
        first = int(turned.argmax())
        return DataProblem(
            where, f"box {first} is {boxes[first].tolist()}; expected x0 y0 x1 y1 with x0 <= x1, y0 <= y1"
        )
    return len(vectors), True
