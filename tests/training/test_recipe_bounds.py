"""No number of a recipe may be nonsense: what is refused, and in which words."""

import dataclasses
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from diptych.common.config import parse
from diptych.common.errors import DiptychError
from diptych.training.recipe import Recipe, read_recipe

TEXT = """
[model]
kind = "vse"
[data]
kind = "scenes"
[loss]
kind = "hinge"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(TEXT)
    return tmp_path / "small.toml"


def parts(hint: Any) -> Iterator[Any]:
    """The types that a field's hint is made of."""
    if get_origin(hint) in (Union, types.UnionType):
        for inner in get_args(hint):
            yield from parts(inner)
    elif get_origin(hint) in (tuple, dict):
        yield from parts(get_args(hint)[-1 if get_origin(hint) is dict else 0])
    else:
        yield hint


def configurations(cls: type) -> Iterator[type]:
    """A dataclass, and all that its fields can hold."""
    yield cls
    for hint in get_type_hints(cls).values():
        for part in parts(hint):
            if dataclasses.is_dataclass(part):
                yield from configurations(part)  # type: ignore[arg-type]


def numbers() -> list[tuple[type, str, Any]]:
    found = {}
    for cls in configurations(Recipe):
        for name, hint in get_type_hints(cls).items():
            kinds = [part for part in parts(hint) if part in (int, float)]
            if kinds:
                found[cls.__name__, name] = (cls, name, hint)
    return list(found.values())


REQUIRED: dict[str, Any] = {
    "path": "nowhere",
    "name": "nothing",
    "model": "default",
    "image": {"kind": "tower", "name": "nothing"},
}
REQUIRED["text"] = REQUIRED["image"]


def put(hint: Any, value: float) -> Any:
    """A number as a field's hint wants it: by itself, in a list, or in a table."""
    origins = {get_origin(hint), *(get_origin(inner) for inner in get_args(hint))}
    return {"mmd": value} if dict in origins else [value] if tuple in origins else value


@pytest.mark.parametrize(("cls", "name", "hint"), numbers(), ids=lambda v: getattr(v, "__name__", None) or str(v))
def test_every_number_of_every_table_has_its_bounds(cls: type, name: str, hint: Any) -> None:
    needed = [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory is dataclasses.MISSING]
    given = {key: REQUIRED[key] for key in needed}
    parse(cls, given, "recipe.toml")
    worst = float("nan") if float in parts(hint) else -1
    with pytest.raises(DiptychError, match=rf"^recipe\.toml: {name}(\.mmd|\[0\])?: .*expected ") as error:
        parse(cls, {**given, name: put(hint, worst)}, "recipe.toml")
    assert str(worst) in str(error.value)


def test_numbers_are_found() -> None:
    assert len(numbers()) > 50


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("training.epochs=-1", "training: epochs: expected at least 1, got -1"),
        ("training.epochs=0", "training: epochs: expected at least 1, got 0"),
        ("training.batch_size=0", "training: batch_size: expected at least 1, got 0"),
        ("training.clip=-1", "training: clip: expected a number above 0, got -1.0"),
        ("training.clip=0", "training: clip: expected a number above 0, got 0.0"),
        ("training.average=2", "training: average: expected a number from 0 to below 1, got 2.0"),
        ("training.average=1", "training: average: expected a number from 0 to below 1, got 1.0"),
        ("training.drop_words=2", "training: drop_words: expected a number from 0 to 1, got 2.0"),
        ("training.drop_regions=-0.1", "training: drop_regions: expected a number from 0 to 1, got -0.1"),
        ("training.optimiser.lr=1e30", "training: optimiser: lr: expected a number from 0 to 100, got 1e+30"),
        ("training.optimiser.lr=-1", "training: optimiser: lr: expected a number from 0 to 100, got -1.0"),
        ("training.optimiser.lr=inf", "training: optimiser: lr: expected a number from 0 to 100, got inf"),
        ("training.optimiser.momentum=1", "optimiser: momentum: expected a number from 0 to below 1, got 1.0"),
        ("training.optimiser.weight_decay=-1", "optimiser: weight_decay: expected at least 0, got -1.0"),
        ("training.schedule.warmup_epochs=-1", "schedule: warmup_epochs: expected at least 0, got -1.0"),
        ("training.schedule.factor=0", "schedule: factor: expected a number above 0, got 0.0"),
        ("training.schedule.milestones=[3, -2]", "schedule: milestones[1]: expected at least 0, got -2.0"),
        ("training.multipliers={image_encoder = -1}", "multipliers.image_encoder: expected at least 0, got -1.0"),
        ("training.frozen_epochs={image_encoder = -1}", "frozen_epochs.image_encoder: expected at least 0, got -1"),
        ("training.terms={mmd = -1}", "training: terms.mmd: expected at least 0, got -1.0"),
        ("training.workers=-1", "training: workers: expected at least 0, got -1"),
        ("training.seed=-1", "training: seed: expected at least 0, got -1"),
        ("training.evaluate_epochs=0", "training: evaluate_epochs: expected at least 1, got 0"),
        ("training.checkpoint_steps=0", "training: checkpoint_steps: expected at least 1, got 0"),
        ("training.patience=0", "training: patience: expected at least 1, got 0"),
        ("training.score_rows=0", "training: score_rows: expected at least 1, got 0"),
        ("training.hold_pictures=0", "training: hold_pictures: expected at least 1, got 0"),
        ("loss.margin=-0.1", "loss: margin: expected at least 0, got -0.1"),
        ("loss.all_negatives_epochs=-1", "loss: all_negatives_epochs: expected at least 0, got -1"),
        ('loss={kind="infonce", temperature=0}', "loss: temperature: expected a number above 0, got 0.0"),
        ('loss={kind="sigmoid", scale=0}', "loss: scale: expected a number above 0, got 0.0"),
        ("data.train=0", "data: train: expected at least 1, got 0"),
        ("data.validation=0", "data: validation: expected at least 1, got 0"),
        ("data.test=-1", "data: test: expected at least 0, got -1"),
        ('data={kind="files", path="x", validation_limit=0}', "data: validation_limit: expected at least 1, got 0"),
        ("model.dim=0", "model: dim: expected at least 1, got 0"),
        ('model.text={kind="gru", limit=2}', "model: text: limit: expected at least 3, got 2"),
        ('model={kind="dive", dropout=1.0}', "model: dropout: expected a number from 0 to below 1, got 1.0"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(path: Path, assignment: str, words: str) -> None:
    with pytest.raises(DiptychError) as error:
        read_recipe(path, None, (assignment,))
    assert str(error.value).startswith(f"{path}: ")
    assert str(error.value).endswith(words)


@pytest.mark.parametrize("recipe", sorted(Path(__file__).parents[2].glob("recipes/*.toml")), ids=lambda p: p.stem)
def test_the_recipes_that_come_with_diptych_are_within_their_bounds(recipe: Path) -> None:
    read_recipe(recipe)
