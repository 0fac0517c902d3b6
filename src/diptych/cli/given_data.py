"""The pictures and sentences that --data, --split, --features and --images name, or that a run's own recipe does."""

import sys
from dataclasses import dataclass
from pathlib import Path

from diptych.common.errors import DiptychError, nearest
from diptych.data.collection import Collection
from diptych.data.read import read_collection
from diptych.evaluation.overlap import trained_on
from diptych.training.data import Splits, load_splits
from diptych.training.recipe import load_run_recipe


@dataclass(frozen=True)
class GivenData:
    """What the options say of the data; all of them may be left out, where a run names its own."""

    data: str | None = None
    split: str | None = None
    features: Path | None = None
    images: Path | None = None


@dataclass(frozen=True)
class ReadData:
    """What runs are judged on, where it is from, and notes on pictures that they were trained on."""

    collection: Collection
    source: str
    split: str
    notes: tuple[str, ...]


def read_given(given: GivenData, runs: list[str], protocol: str = "all-pairs") -> ReadData:
    """Read the data that is given, or else that of the first run; what runs were trained on is warned of."""
    trained = {run: splits for run in runs if (splits := splits_of(run, required=given.data is None)) is not None}
    if given.data is not None:
        whole = read_collection(given.data, features=given.features, images=given.images)
        collection, split = choose_split(whole, given.split, protocol)
        source = given.data
    else:
        if given.features is not None or given.images is not None:
            raise DiptychError("--features and --images belong to --data, which is not given")
        name, splits = next(iter(trained.items()))
        collection, split = own_split(splits, given.split)
        source = f"the data of {name}"
    notes = []
    for run, splits in trained.items():
        seen = trained_on(splits.train, collection)
        if seen:
            notes.append(
                f"{run} was trained on {len(seen)} of these {len(collection)} pictures, such as {seen[0]}: "
                "its figures are too high"
            )
    for note in notes:
        print(f"warning: {note}", file=sys.stderr)
    return ReadData(collection, source, split, tuple(notes))


def splits_of(run: str, required: bool) -> Splits | None:
    """The data that a run was trained and judged on; none where it is not a run, or its data is not at hand."""
    if not (Path(run) / "recipe.json").is_file():
        if required:
            raise DiptychError("has no recipe.json that names its data; give --data", where=run)
        return None
    recipe = load_run_recipe(Path(run))
    if not required and recipe.data.kind == "scenes":
        return None  # drawn pictures are in no dataset of photographs
    try:
        return load_splits(recipe.data)
    except DiptychError as error:
        if required:
            raise
        print(f"note: whether {run} was trained on these pictures cannot be checked: {error}", file=sys.stderr)
        return None


def own_split(splits: Splits, split: str | None) -> tuple[Collection, str]:
    """One of the three parts of a run's own data."""
    parts = {"train": splits.train, "val": splits.validation, "validation": splits.validation, "test": splits.test}
    wanted = split or "test"
    if wanted not in parts:
        raise DiptychError(f"--split: {wanted!r} does not exist; {nearest(wanted, list(parts))}")
    if not len(parts[wanted]):
        raise DiptychError(f"--split: the run's data has no pictures in its {wanted} split; give another, or --data")
    return parts[wanted], "val" if wanted == "validation" else wanted


def choose_split(whole: Collection, split: str | None, protocol: str) -> tuple[Collection, str]:
    """The named split; else `test`, or the only one. Of COCO's precomputed folders, `testall` is the whole 5K."""
    names = list(whole.splits)
    usual = ["testall", "test"] if protocol in ("coco-1k", "coco-5k", "eccv", "cxc") else ["test"]
    wanted = split or next((name for name in usual if name in names), names[0] if len(names) == 1 else None)
    if wanted is None:
        raise DiptychError(f"has no test split; choose one with --split: {', '.join(names)}", where=whole.name)
    if wanted not in names:
        raise DiptychError(f"has no split {wanted!r}; {nearest(wanted, names)}", where=whole.name)
    return whole.split(wanted), wanted
