"""What a recipe trains and is judged on: files on disk, or drawn scenes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection


@dataclass(frozen=True)
class FilesConfig:
    """Anything that `diptych data` reads.

    path: captions with pictures or features; features: a feature file or folder where path has none;
    images: the pictures' folder where path does not say it
    train, validation, test: names of splits; validation_limit: pictures of the validation split that are used
    """

    path: str
    kind: Literal["files"] = "files"
    features: str | None = None
    images: str | None = None
    train: tuple[str, ...] = ("train",)
    validation: str = "val"
    test: str = "test"
    validation_limit: int | None = None
    vocabulary: str | None = None
    at_least: int = 4


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


DataConfig = FilesConfig | ScenesConfig


@dataclass(frozen=True)
class Splits:
    """The three parts of a recipe's data."""

    train: Collection
    validation: Collection
    test: Collection


def load_splits(config: DataConfig) -> Splits:
    """Read a recipe's data; an empty split is an error that names it."""
    if isinstance(config, ScenesConfig):
        return _load_scenes(config)
    from diptych.data.read import read_collection

    whole = read_collection(
        Path(config.path),
        features=None if config.features is None else Path(config.features),
        images=None if config.images is None else Path(config.images),
    )
    validation = whole.split(config.validation)
    if config.validation_limit is not None:
        validation = validation.first(config.validation_limit)
    splits = Splits(whole.split(*config.train), validation, whole.split(config.test))
    for name, wanted, part in [
        ("train", ", ".join(config.train), splits.train),
        ("validation", config.validation, splits.validation),
    ]:
        if len(part) == 0:
            raise DiptychError(f"{config.path}: data.{name}: no pictures in split {wanted!r}; found {whole.splits}")
    return splits


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
