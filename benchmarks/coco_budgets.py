"""How much a run of benchmarks/papers_on_coco.py may cost; all runs of one table have one budget."""

from dataclasses import dataclass
from pathlib import Path

from diptych.training.losses.hinge import HingeConfig
from diptych.training.recipe import read_recipe


@dataclass(frozen=True)
class Budget:
    """Pictures of each split, the side they are seen at, and what is changed in every recipe.

    cells: the file that the features are computed into
    training, test: the first so many; all where None
    rate: how many times the recipe's learning rate
    all_negatives_epochs: in the recipes that begin with all negatives, for so long; None leaves them as they are
    """

    cells: str
    size: int
    training: int | None
    validation: int
    test: int | None
    settings: tuple[str, ...] = ()
    rate: float = 1.0
    all_negatives_epochs: int | None = None

    def settings_of(self, path: Path, variant: str | None) -> tuple[str, ...]:
        """What is changed in one variant of a recipe."""
        recipe, settings = read_recipe(path, variant, self.settings), list(self.settings)
        if self.rate != 1:
            settings.append(f"training.optimiser.lr={self.rate * recipe.training.optimiser.lr:g}")
        begins_with_all = isinstance(recipe.loss, HingeConfig) and recipe.loss.all_negatives_epochs > 0
        if begins_with_all and self.all_negatives_epochs is not None:
            settings.append(f"loss.all_negatives_epochs={self.all_negatives_epochs}")
        return tuple(settings)


BUDGETS = {
    "coco-grid": Budget(  # the recipes as they are, for a GPU
        cells="data/coco-lite2.features",
        size=224,
        training=None,
        validation=1000,
        test=None,
    ),
    "coco-grid-small": Budget(  # for two cores
        cells="data/coco-lite2-small.features",
        size=160,
        training=20_000,
        validation=300,
        test=1000,
        settings=(
            "model.dim=256",
            "model.image.size=160",
            "training.batch_size=64",
            "training.epochs=4",
            "training.evaluate_epochs=2",
            'training.precision="float32"',
        ),
        rate=4,  # of 1, 2, 4 and 8 the best for VSE++ by validation, and for VSE∞ within 1.2 of it
        all_negatives_epochs=1,
    ),
}
