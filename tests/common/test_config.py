from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.common.config import merge, override, parse, read_json, read_toml, to_tree
from diptych.common.errors import DiptychError


@dataclass(frozen=True)
class Round:
    kind: Literal["round"] = "round"
    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    kind: Literal["square"] = "square"
    side: int = 2


@dataclass(frozen=True)
class Config:
    name: str
    shape: Round | Square = field(default_factory=Round)
    sizes: tuple[int, ...] = ()
    limit: int | None = None
    weights: dict[str, float] = field(default_factory=dict)
    mode: Literal["fast", "slow"] = "fast"


def test_a_tree_becomes_dataclasses_and_back() -> None:
    tree = {"name": "x", "shape": {"kind": "square", "side": 3}, "sizes": [1, 2], "weights": {"a": 1}}
    config = parse(Config, tree, "here")
    assert config == Config("x", Square(side=3), (1, 2), None, {"a": 1.0})
    assert parse(Config, to_tree(config), "there") == config


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"name": "x", "sizs": [1]}, ["recipe.toml", "'sizs'", "'sizes'"]),
        ({"name": 3}, ["recipe.toml", "name", "expected str", "3"]),
        ({}, ["recipe.toml", "missing key 'name'"]),
        ({"name": "x", "mode": "fst"}, ["mode", "'fst'", "'fast'"]),
        ({"name": "x", "shape": {"kind": "rond"}}, ["shape", "'rond'", "'round'"]),
        ({"name": "x", "shape": {"side": 3}}, ["shape", "kind"]),
        ({"name": "x", "sizes": 3}, ["sizes", "list"]),
        ({"name": "x", "limit": True}, ["limit", "int"]),
        ({"name": "x", "shape": {"kind": "square", "side": 1.5}}, ["shape: side", "int", "1.5"]),
    ],
)
def test_what_is_wrong_is_named(tree: dict[str, object], words: list[str]) -> None:
    with pytest.raises(DiptychError) as error:
        parse(Config, tree, "recipe.toml")
    for word in words:
        assert word in str(error.value)


def test_merge_lays_tables_over_each_other_and_replaces_other_kinds() -> None:
    base = {"shape": {"kind": "round", "radius": 2.0}, "a": {"b": 1, "c": 2}}
    assert merge(base, {"a": {"c": 3}}) == {"shape": {"kind": "round", "radius": 2.0}, "a": {"b": 1, "c": 3}}
    assert merge(base, {"shape": {"kind": "square"}})["shape"] == {"kind": "square"}
    assert merge(base, {"a": {}})["a"] == {}
    assert base["a"] == {"b": 1, "c": 2}


def test_overrides_read_toml_values_and_plain_words() -> None:
    tree = override({"a": {"b": 1}}, ("a.b=2", "a.c=[1, 2]", "name=plain-word", "flag=true", "lr=1e-3"))
    assert tree == {"a": {"b": 2, "c": [1, 2]}, "name": "plain-word", "flag": True, "lr": 1e-3}
    with pytest.raises(DiptychError, match="key=value"):
        override({}, ("epochs",))


@given(st.dictionaries(st.text(min_size=1), st.integers()), st.dictionaries(st.text(min_size=1), st.integers()))
def test_merge_of_flat_tables_is_a_dictionary_update(base: dict[str, int], changes: dict[str, int]) -> None:
    assert merge(base, changes) == {**base, **changes}


def test_broken_files_name_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1,\n "b": }')
    with pytest.raises(DiptychError, match=r"a\.json: line 2"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.toml").write_text("a = 1\nb = = 2\n")
    with pytest.raises(DiptychError, match=r"a\.toml.*line 2"):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(DiptychError, match=r"gone\.toml: no such file"):
        read_toml(tmp_path / "gone.toml")
