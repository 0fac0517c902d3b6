import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.dive import DivEConfig
from diptych.matchers.vse import VSEConfig
from diptych.training.compiled import columns, compile_modules
from diptych.training.loop import Device, train
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.recipe import Recipe
from diptych.training.start import build_for
from tests.training import pixel_toy, toy
from tests.training.test_loop import metrics


def compiler_works() -> bool:
    try:
        return bool(torch.compile(lambda x: x.sin() + 1)(torch.zeros(3)).eq(1).all())
    except Exception:  # whatever is missing: a C++ compiler, its headers
        return False


@pytest.fixture
def recipe(tmp_path: Path, tiny_bert: str) -> Recipe:
    """Pictures and sentences through backbones, without dropout, which compiled kernels draw otherwise."""
    bert = tmp_path / "bert"
    shutil.copytree(tiny_bert, bert)
    config = json.loads((bert / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (bert / "config.json").write_text(json.dumps(config))
    whole = pixel_toy.recipe(tmp_path, epochs=2, hold_pictures=32)
    assert isinstance(whole.model, VSEConfig)
    model = replace(whole.model, text=TransformerConfig(name=str(bert)), drop_cells=False)
    return replace(whole, model=model, loss=InfoNCEConfig())


def test_a_compiled_run_is_the_same_to_rounding(recipe: Recipe, tmp_path: Path) -> None:
    if not compiler_works():
        pytest.skip("no C++ compiler")
    compiled = replace(recipe, training=replace(recipe.training, compile=True))
    train(recipe, tmp_path / "plain", Device("cpu"), pixel_toy.splits())
    train(compiled, tmp_path / "compiled", Device("cpu"), pixel_toy.splits())
    plain, fast = ([e["loss"] for e in metrics(tmp_path / run) if "loss" in e] for run in ("plain", "compiled"))
    assert len(plain) == 4
    assert fast == pytest.approx(plain, rel=1e-4)
    names = [set(load_file(tmp_path / run / "last" / "model.safetensors")) for run in ("plain", "compiled")]
    assert names[0] == names[1]


def test_sets_and_terms_are_compiled_too(tmp_path: Path) -> None:
    if not compiler_works():
        pytest.skip("no C++ compiler")
    text = GRUConfig(word_dim=6)
    image = FeatureConfig(feature_dim=8)
    model = DivEConfig(dim=8, image=image, text=text, slots=2, iterations=2, heads=2, head_dim=4, dropout=0.0)
    plain = toy.recipe(model=model, epochs=1, terms={"mmd": 0.1, "diversity": 0.1})
    compiled = replace(plain, training=replace(plain.training, compile=True))
    losses = []
    for name, recipe in (("plain", plain), ("compiled", compiled)):
        train(recipe, tmp_path / name, Device("cpu"), toy.splits())
        losses.append([(e["loss"], *e["terms"].values()) for e in metrics(tmp_path / name) if "loss" in e])
    assert len(losses[0]) == 4
    for ours, theirs in zip(losses[1], losses[0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    matcher = build_for(compiled, toy.splits())
    compile_modules(matcher)
    assert matcher.image_set._compiled_call_impl is not None
    assert matcher.text_set._compiled_call_impl is not None


def test_weights_keep_their_names_and_both_backbones_are_compiled(recipe: Recipe) -> None:
    matcher = build_for(recipe, pixel_toy.splits())
    before = list(matcher.state_dict())
    compile_modules(matcher)
    assert list(matcher.state_dict()) == before
    for encoder in (matcher.image_encoder, matcher.text_encoder):
        assert encoder.backbone._compiled_call_impl is not None  # type: ignore[union-attr]


def test_sentences_are_widened_only_as_far_as_a_backbone_has_positions(recipe: Recipe) -> None:
    matcher = build_for(recipe, pixel_toy.splits())
    config = matcher.text_encoder.backbone.config  # type: ignore[union-attr]
    object.__setattr__(config, "max_position_embeddings", 64)
    assert columns(matcher) == 8
    object.__setattr__(config, "max_position_embeddings", 30)
    assert columns(matcher) == 1


def test_a_matcher_without_a_backbone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"training\.compile: .* no backbone"):
        train(toy.recipe(compile=True), tmp_path / "run", Device("cpu"), toy.splits())
