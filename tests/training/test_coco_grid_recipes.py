from dataclasses import replace
from pathlib import Path

import pytest

from diptych.training.recipe import Recipe, TrainingConfig, read_recipe, variant_names

RECIPES = sorted((Path(__file__).parent.parent.parent / "recipes").glob("*-coco-grid.toml"))
# What belongs to a model itself: its regularisers.
OWN = ("drop_regions", "drop_words", "terms", "multipliers")


def shared(recipe: Recipe) -> tuple[object, ...]:
    default = TrainingConfig()
    training = replace(recipe.training, **{name: getattr(default, name) for name in OWN})
    return training, recipe.data, recipe.model.text, replace(recipe.model.image, projection="linear")


def test_the_recipes_differ_in_their_models_alone() -> None:
    assert len(RECIPES) == 6
    first = shared(read_recipe(RECIPES[0]))
    for path in RECIPES[1:]:
        assert shared(read_recipe(path)) == first, path.name


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_variant_changes_the_model_or_its_loss_the_rate_or_the_length_and_nothing_else(path: Path) -> None:
    main = read_recipe(path)
    for variant in variant_names(path):
        recipe = read_recipe(path, variant)
        if "rate-" in variant:
            assert recipe.training.optimiser.lr != main.training.optimiser.lr
            assert replace(recipe.training, optimiser=main.training.optimiser) == main.training
        elif variant.endswith("longer"):
            same = read_recipe(path, variant.removesuffix("longer").rstrip("-") or None)
            assert (recipe.model, recipe.loss) == (same.model, same.loss)
            assert recipe.training == replace(main.training, epochs=3 * main.training.epochs)
        else:
            trained_otherwise = variant in ("no-augmentation", "sets-at-full-rate")
            assert ((recipe.model, recipe.loss) != (main.model, main.loss)) != trained_otherwise
            assert shared(recipe) == shared(main)
