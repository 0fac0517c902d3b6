from pathlib import Path

import pytest

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.matchers.vse import VSEConfig
from diptych.training.recipe import load_run_recipe, read_recipe, variant_names

TEXT = """
[model]
kind = "vse"
dim = 32
text = {kind = "gru", bidirectional = false}

[data]
kind = "scenes"
train = 100

[loss]
kind = "hinge"
margin = 0.1

[training]
epochs = 3

[variants.order]
model.similarity = "order"
[variants.bce]
loss = {kind = "bce"}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(TEXT)
    return tmp_path / "small.toml"


def test_variants_and_overrides_are_laid_over_the_recipe(path: Path) -> None:
    assert variant_names(path) == ["order", "bce"]
    plain = read_recipe(path)
    assert plain.name == "small"
    assert isinstance(plain.model, VSEConfig)
    assert (plain.model.similarity, plain.loss.kind, plain.training.epochs) == ("cosine", "hinge", 3)
    order = read_recipe(path, "order", ("training.epochs=7", "model.dim=8"))
    assert isinstance(order.model, VSEConfig)
    assert (order.model.similarity, order.model.dim, order.training.epochs) == ("order", 8, 7)
    assert order.variant == "order"
    assert read_recipe(path, "bce").loss.kind == "bce"


def test_a_run_keeps_its_resolved_recipe(path: Path, tmp_path: Path) -> None:
    recipe = read_recipe(path, "bce")
    write_json(tmp_path / "run" / "recipe.json", to_tree(recipe))
    assert load_run_recipe(tmp_path / "run") == recipe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("training.epoch=3",), ["small.toml", "training", "'epoch'", "'epochs'"]),
        (("model.kind=vsee",), ["model", "'vsee'", "'vse'"]),
        (("model.text.worddim=3",), ["model: text", "'worddim'", "'word_dim'"]),
        (("training.optimiser.kind=adan",), ["'adan'", "'adam"]),
        (("trainin.epochs=3",), ["'trainin'", "'training'"]),
        (("loss.kind=hinges",), ["small.toml", "loss", "'hinges'", "'hinge'"]),
        (("loss.margins=1.0",), ["loss", "'margins'", "'margin'"]),
        (("training.terms.mdm=0.1",), ["small.toml", "training: terms", "'mdm'", "'mmd'"]),
    ],
)
def test_a_wrong_key_names_its_neighbour(path: Path, change: tuple[str, ...], words: list[str]) -> None:
    with pytest.raises(DiptychError) as error:
        read_recipe(path, None, change)
    for word in words:
        assert word in str(error.value)


def test_an_unknown_variant_names_its_neighbour(path: Path) -> None:
    with pytest.raises(DiptychError, match=r"'ordr'.*'order'"):
        read_recipe(path, "ordr")
