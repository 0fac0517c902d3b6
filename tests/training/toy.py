"""A run small enough for a test: made-up features whose sentences name what is in them."""

from pathlib import Path

import numpy as np

from diptych.data.collection import Collection, Item, Regions, sentences
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.catalog import MatcherConfig
from diptych.matchers.vse import VSEConfig
from diptych.training.data import FilesConfig, Splits
from diptych.training.losses.catalog import LossConfig
from diptych.training.losses.hinge import HingeConfig
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe, TrainingConfig

WORDS = ["red", "blue", "big", "small", "dog", "cat", "boat", "house"]


class ToyFeatures:
    """One region a word, the word's own direction with noise."""

    def __init__(self, things: list[list[int]]) -> None:
        rng = np.random.default_rng(5)
        self.rows = [np.eye(8, dtype=np.float32)[t] + 0.1 * rng.standard_normal((len(t), 8)) for t in things]

    @property
    def dim(self) -> int:
        return 8

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.rows[row].astype(np.float32))


def collection(count: int = 24) -> Collection:
    rng = np.random.default_rng(0)
    things = [sorted(rng.choice(8, size=int(rng.integers(1, 4)), replace=False).tolist()) for _ in range(count)]
    items = [
        Item(
            str(i),
            sentences([" and ".join(WORDS[t] for t in row), " ".join(WORDS[t] for t in reversed(row))], str(i)),
            split="train" if i < count * 2 // 3 else "val",
            row=i,
        )
        for i, row in enumerate(things)
    ]
    return Collection("toy", items, ToyFeatures(things))


def splits() -> Splits:
    whole = collection()
    return Splits(whole.split("train"), whole.split("val"), whole.split("val"))


def recipe(loss: LossConfig | None = None, model: MatcherConfig | None = None, **training: object) -> Recipe:
    settings = {"epochs": 2, "batch_size": 8, "optimiser": OptimiserConfig(lr=5e-3), **training}
    return Recipe(
        name="toy",
        model=model or VSEConfig(dim=16, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=6)),
        data=FilesConfig(path=str(Path("nowhere")), at_least=1),
        loss=loss or HingeConfig(),
        training=TrainingConfig(**settings),  # type: ignore[arg-type]
    )
