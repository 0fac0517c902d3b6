"""The documentation names what there is: every key of a recipe, every extra, every command."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from diptych.cli.main import COMMANDS
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.training.data import FilesConfig, ScenesConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.recipe import Recipe, TrainingConfig
from diptych.training.terms.catalog import TERMS

ROOT = Path(__file__).parent.parent
# Said by the page in other ways: the tables' own names, and what the command line fills in.
ELSEWHERE = {"model", "data", "loss", "training", "variant"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def code(text: str) -> set[str]:
    """The words inside backticks."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))


@pytest.mark.parametrize(
    "config",
    [
        Recipe, TrainingConfig, OptimiserConfig, ScheduleConfig, FilesConfig, ScenesConfig,
        *get_args(LossConfig),
        FeatureConfig, PixelConfig, GRUConfig, TransformerConfig,
    ],
)  # fmt: skip
def test_every_key_of_a_recipe_is_described(config: Any) -> None:
    described = code(page("recipes.md"))
    assert {f.name for f in fields(config)} - described <= ELSEWHERE


def test_every_term_of_a_recipe_is_described() -> None:
    assert set(TERMS) <= code(page("recipes.md"))


def test_every_extra_is_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]) <= code(page("install.md"))


def test_every_command_is_in_the_table_of_tasks() -> None:
    assert {name for name in COMMANDS if f"`diptych {name}`" not in page("cli.md")} == set()


def test_every_recipe_is_listed() -> None:
    listed = set(re.findall(r"`([^`\n]+)`", page("recipes.md")))
    assert {path.stem for path in (ROOT / "recipes").glob("*.toml")} <= listed
