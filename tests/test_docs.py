"""The documentation names what there is: every key of a recipe, every matcher, every recipe, extra and command."""

import re
import tomllib
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, get_args

import pytest

from diptych.cli.main import COMMANDS
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.encoders.towers import TowerConfig
from diptych.matchers.catalog import MATCHERS
from diptych.training.data import FilesConfig, ScenesConfig
from diptych.training.losses.catalog import LossConfig
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.recipe import Recipe, TrainingConfig
from diptych.training.terms.catalog import TERMS
from tests.test_architecture import ROOMS

ROOT = Path(__file__).parent.parent
# Said by the page in other ways: the tables' own names, and what the command line fills in.
ELSEWHERE = {"model", "data", "loss", "training", "variant", "changed"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def built(name: str) -> str:
    """A page with what the build puts in from the code."""
    spec = spec_from_file_location("from_code", ROOT / "docs" / "_ext" / "from_code.py")
    assert spec is not None
    assert spec.loader is not None
    extension: Any = module_from_spec(spec)
    spec.loader.exec_module(extension)
    source = [page(name)]
    extension.put_marks(None, name, source)
    return source[0]


def code(text: str) -> set[str]:
    """The words inside backticks."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))


@pytest.mark.parametrize(
    "config",
    [
        Recipe, TrainingConfig, OptimiserConfig, ScheduleConfig, FilesConfig, ScenesConfig,
        *get_args(LossConfig),
        FeatureConfig, PixelConfig, GRUConfig, TransformerConfig, TowerConfig,
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


def test_every_recipe_is_listed_with_its_variants() -> None:
    rows = dict(re.findall(r"^\| `([^`\n]+)` \|(.*)$", built("recipes.md"), re.MULTILINE))
    for path in (ROOT / "recipes").glob("*.toml"):
        told, variants = rows[path.stem].rsplit("|", 2)[:2]
        assert len(told.split()) > 3, path.name
        assert re.findall(r"`([^`]+)`", variants) == list(tomllib.loads(path.read_text()).get("variants", {}))


def test_every_matcher_is_described_with_its_options() -> None:
    text = built("models/index.md")
    for kind, (config, _) in MATCHERS.items():
        _, _, section = text.partition(f'### `kind = "{kind}"`')
        options = {f.name for f in fields(config)} - {"kind", "image", "text"}
        assert options <= code(section.partition("\n### ")[0]), kind


def walks() -> dict[str, list[str]]:
    """The files of each walk through the rooms, in order, by the walk's heading."""
    _, _, part = page("architecture.md").partition("\n## Four walks\n")
    sections = re.split(r"^### ", part.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    return {
        section.partition("\n")[0]: re.findall(r"^\| `([\w/]+\.py)` \|", section, re.MULTILINE) for section in sections
    }


@pytest.mark.parametrize("walk", ["A training step", "An evaluation", "Indexing and asking", "An explanation"])
def test_a_walk_through_the_rooms_never_turns_back(walk: str) -> None:
    rooms = [path.partition("/")[0] for path in walks()[walk]]
    assert len(rooms) > 10
    heights = [len(ROOMS) - ROOMS.index(room) for room in rooms]
    assert heights == sorted(heights)
    assert {"data", "encoders", "matchers"} < set(rooms)


@pytest.mark.parametrize("name", ["architecture.md", "../CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(name: str) -> None:
    rooms = "|".join(ROOMS)
    named = set(re.findall(rf"`(?:src/diptych/)?((?:{rooms})/[\w/]*(?:\.py)?)`", page(name)))
    assert len(named) > 5
    theirs = {path for path in named if path.rpartition("/")[2] == "mine.py"}  # what a reader is to write
    assert {path for path in named - theirs if not (ROOT / "src" / "diptych" / path).exists()} == set()
