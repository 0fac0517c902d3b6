"""What a recipe trains and is judged on: files on disk, or drawn scenes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.data.join import join_collections


@dataclass(frozen=True)
class FilesConfig:
    """Anything that `diptych data` reads.

    path: captions with pictures or features, or several such: trained on together, each validated by itself
    features: a feature file or folder where path has none; images: the pictures' folder where path does not say it
    train, validation, test: names of splits; validation_limit: pictures of the validation split that are used
    """

    path: str | tuple[str, ...]
    kind: Literal["files"] = "files"
    features: str | None = None
    images: str | None = None
    train: tuple[str, ...] = ("train",)
    validation: str = "val"
    test: str = "test"
    validation_limit: int | None = None
    vocabulary: str | None = None
    at_least: int = 4

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("path: expected one path or several")
        check_bounds(self, "validation_limit", "at_least", low=1)
        for name in ("features", "images"):
            if getattr(self, name) is not None and len(self.paths) > 1:
                raise ValueError(f"{name}: is for one path, and there are {len(self.paths)}")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, however many."""
        return (self.path,) if isinstance(self.path, str) else self.path


@dataclass(frozen=True)
class ScenesConfig:
    """Drawn scenes; regions: the drawing's boxes, a grid of cells, or `none` for pixels through a backbone."""

    kind: Literal["scenes"] = "scenes"
    train: int = 4000
    validation: int = 500
    test: int = 500
    seed: int = 0
    regions: Literal["boxes", "grid", "none"] = "boxes"
    vocabulary: str | None = None
    at_least: int = 1

    def __post_init__(self) -> None:
        check_bounds(self, "train", "validation", "at_least", low=1)
        check_bounds(self, "test", "seed", low=0)


DataConfig = FilesConfig | ScenesConfig


@dataclass(frozen=True)
class Splits:
    """The three parts of a recipe's data, several sets joined; `sets` are the validation splits one by one."""

    train: Collection
    validation: Collection
    test: Collection
    sets: tuple[Collection, ...] = ()

    @property
    def validations(self) -> tuple[Collection, ...]:
        """What is validated on, each by itself: a picture's rank is counted within its own set."""
        return self.sets or (self.validation,)


def load_splits(config: DataConfig) -> Splits:
    """Read a recipe's data; an empty split is an error that names it."""
    if isinstance(config, ScenesConfig):
        return _load_scenes(config)
    wholes = [_read(config, path) for path in config.paths]
    train = [whole.split(*config.train) for whole in wholes]
    validation = [whole.split(config.validation) for whole in wholes]
    if config.validation_limit is not None:
        validation = [part.first(config.validation_limit) for part in validation]
    test = [whole.split(config.test) for whole in wholes]
    for name, wanted, parts in [
        ("train", ", ".join(config.train), train),
        ("validation", config.validation, validation),
    ]:
        if not any(map(len, parts)):
            there = ", ".join(str(whole.splits) for whole in wholes)
            where = ", ".join(config.paths)
            raise DiptychError(f"{where}: data.{name}: no pictures in split {wanted!r}; found {there}")
    sets = tuple(part for part in validation if len(part))
    return Splits(join_collections(train), join_collections(sets), join_collections(test), sets)


def _read(config: FilesConfig, path: str) -> Collection:
    from diptych.data.read import read_collection

    return read_collection(
        Path(path),
        features=None if config.features is None else Path(config.features),
        images=None if config.images is None else Path(config.images),
    )


def _load_scenes(config: ScenesConfig) -> Splits:
    from diptych.data.scenes import scenes_collection

    total = config.train + config.validation + config.test
    whole = scenes_collection(
        total,
        seed=config.seed,
        splits=(config.train, config.validation, config.test),
        regions=None if config.regions == "none" else config.regions,
    )
    return Splits(whole.split("train"), whole.split("val"), whole.split("test"))
