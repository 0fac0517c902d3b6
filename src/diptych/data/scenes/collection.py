"""Drawn scenes as a collection like any other."""

from collections.abc import Sequence
from functools import partial

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, sentences
from diptych.data.scenes.draw import PICTURE_SIZE, checked_size, draw
from diptych.data.scenes.features import RegionKind, SceneFeatures
from diptych.data.scenes.generate import Captioned, captioned_scenes

SPLITS = ("train", "val", "test")
# More than anyone has drawn; their names alone are held in memory.
MOST_SCENES = 10_000_000


def scenes_collection(
    count: int,
    seed: int = 0,
    splits: Sequence[float] = (0.8, 0.1, 0.1),
    picture_size: int = PICTURE_SIZE,
    regions: RegionKind | None = None,
) -> Collection:
    """The first `count` scenes of a seed, drawn when they are opened; `splits` as in `split_counts`.

    With `regions`, local features come along, as `SceneFeatures` computes them. Item number i is scene number i;
    `captioned(seed, i)` gives its boxes and its word-to-object truth again.
    """
    return as_collection(list(captioned_scenes(count, seed)), splits, picture_size, regions)


def as_collection(
    scenes: Sequence[Captioned],
    splits: Sequence[float] = (0.8, 0.1, 0.1),
    picture_size: int = PICTURE_SIZE,
    regions: RegionKind | None = None,
) -> Collection:
    """Scenes that are at hand already as a collection."""
    checked_size(picture_size)
    names = split_names(len(scenes), splits)
    items = [
        Item(
            id=scene.id,
            sentences=sentences((c.text for c in scene.captions), scene.id),
            split=name,
            open=partial(draw, scene.scene, picture_size),
            metadata={"seed": str(scene.seed), "index": str(scene.index)},
        )
        for scene, name in zip(scenes, names, strict=True)
    ]
    collection = Collection("scenes", items)
    if regions is None:
        return collection
    features = SceneFeatures([scene.scene for scene in scenes], regions, picture_size)
    return collection.with_features(features, {item.id: row for row, item in enumerate(items)})


def split_counts(count: int, splits: Sequence[float]) -> tuple[int, int, int]:
    """How many scenes are in train, val and test: either these very numbers, or parts of `count` that sum to 1."""
    if len(splits) == 3 and min(splits) >= 0:
        if sum(splits) == count and all(float(s).is_integer() for s in splits):
            return int(splits[0]), int(splits[1]), int(splits[2])
        if abs(sum(splits) - 1) < 1e-9:
            val, test = round(splits[1] * count), round(splits[2] * count)
            # Two halves that are both rounded up may be one too many.
            return max(count - val - test, 0), val, min(test, count - val)
    raise DiptychError(
        f"splits: {', '.join(map(str, splits))} do not fit; expected three numbers (train, val, test) that sum to "
        f"{count}, or three parts that sum to 1"
    )


def split_names(count: int, splits: Sequence[float]) -> list[str]:
    """The split of each scene: first train, then val, then test."""
    if count < 1:
        raise DiptychError(f"count: {count} is not possible; expected at least one scene")
    if count > MOST_SCENES:
        raise DiptychError(f"count: {count} is not possible; expected at most {MOST_SCENES:,} scenes")
    return [name for name, number in zip(SPLITS, split_counts(count, splits), strict=True) for _ in range(number)]
