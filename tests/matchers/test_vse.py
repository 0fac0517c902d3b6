from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from diptych.common.config import parse, to_tree
from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures, Pixels, Tokens, pad_regions
from diptych.encoders import images as image_encoders
from diptych.encoders.backbones import Backbone, Preprocess
from diptych.encoders.gpo import GPOConfig
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import View
from diptych.matchers.vse import VSE, VSEConfig
from tests.matchers import inputs
from tests.matchers.cases_vse import CASES, infinity

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
WORD_CASES = sorted(name for name, config in CASES.items() if isinstance(config.text, GRUConfig))


def build(config: VSEConfig) -> VSE:
    return VSE(config, inputs.word_tokenizer()).eval()


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum().sqrt() + 1e-8)


def slow_pool(matcher: VSE, side: str, vectors: Tensor, whole: Tensor | None) -> Tensor:
    """One item's real local vectors (n, d) to one, by the words of the paper."""
    pool = getattr(matcher.config, f"{side}_pool")
    if pool == "whole":
        assert whole is not None
        return whole
    columns = [sorted(column, key=lambda value: -float(value.detach())) for column in vectors.T]
    if pool == "mean":
        return torch.stack([sum(column, torch.zeros(())) / len(column) for column in columns])
    if pool == "max":
        return torch.stack([column[0] for column in columns])
    ranked = torch.stack([torch.stack(column) for column in columns], 1)
    gpo = getattr(matcher, f"{side}_gpo")  # its coefficients have a loop of their own in tests/encoders/test_gpo.py
    theta = gpo.coefficients(torch.tensor([len(vectors)]), ranked.unsqueeze(0) if gpo.config.features else None)[0]
    return sum((theta[k] * ranked[k] for k in range(len(ranked))), torch.zeros(ranked.shape[1]))


def slow_scores(matcher: VSE) -> Tensor:
    pictures, sentences = inputs.images(), inputs.texts(matcher.tokenizer)
    image, text = matcher.image_encoder(pictures), matcher.text_encoder(sentences)
    sign = torch.abs if matcher.config.absolute else torch.clone
    scores = []
    for i in range(len(pictures)):
        v = unit(sign(slow_pool(matcher, "image", image.vectors[i, image.mask[i]], None)))
        for j in range(len(sentences)):
            whole = None if text.whole is None else text.whole[j]
            s = unit(sign(slow_pool(matcher, "text", text.vectors[j, text.mask[j]], whole)))
            if matcher.config.similarity == "order":
                scores.append(-(torch.stack([torch.relu(b - a) for a, b in zip(v, s, strict=True)]).norm()))
            else:
                scores.append(sum((a * b for a, b in zip(v, s, strict=True)), torch.zeros(())))
    return torch.stack(scores).view(len(pictures), -1)


@pytest.mark.parametrize("name", WORD_CASES)
def test_scores_and_gradients_are_those_of_a_loop_over_the_formulas(name: str) -> None:
    matcher = build(CASES[name])
    fast = matcher.score(*matcher(inputs.images(), inputs.texts(matcher.tokenizer)))
    slow = slow_scores(matcher)
    torch.testing.assert_close(fast, slow, **CLOSE)
    weights = torch.randn_like(fast)
    trained = [p for p in matcher.parameters() if p.requires_grad]
    fast_gradients = torch.autograd.grad((fast * weights).sum(), trained)
    slow_gradients = torch.autograd.grad((slow * weights).sum(), trained)
    for one, other in zip(fast_gradients, slow_gradients, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


def seen(matcher: VSE, images: LocalFeatures, texts: Tokens) -> dict[str, View]:
    encoded = matcher.image_encoder(images), matcher.text_encoder(texts)
    return matcher.see(matcher.keep_images(encoded[0]), matcher.keep_texts(encoded[1]), encoded)


@pytest.mark.parametrize("name", WORD_CASES)
def test_contributions_sum_to_one_over_what_is_real(name: str) -> None:
    matcher = build(CASES[name])
    views = seen(matcher, inputs.images(extra=2), inputs.texts(matcher.tokenizer, extra=2))
    for view in views.values():
        torch.testing.assert_close(view.values.sum(-1), torch.ones(5, 6))
    # One state from the start: no word's share of it can be told.
    assert ("word_share" in views) == (matcher.config.text_pool != "whole")


def test_a_region_that_is_largest_everywhere_supplies_the_first_coefficient() -> None:
    matcher = build(VSEConfig(dim=8, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=7), image_pool="gpo"))
    with torch.no_grad():
        matcher.image_encoder.fc.weight.copy_(torch.eye(8))
    vectors = torch.randn(1, 5, 8)
    vectors[0, 3] = 9.0
    views = seen(matcher, LocalFeatures(vectors, torch.ones(1, 5, dtype=torch.bool)), inputs.texts(matcher.tokenizer))
    assert matcher.image_gpo is not None
    torch.testing.assert_close(
        views["region_share"].values[0, 0, 3], matcher.image_gpo.coefficients(torch.tensor([5]))[0, 0, 0]
    )


def test_each_side_learns_its_own_coefficients() -> None:
    matcher = build(infinity())
    assert matcher.image_gpo is not None
    assert matcher.text_gpo is not None
    assert matcher.image_gpo.linear.weight is not matcher.text_gpo.linear.weight


# Frames of a video are a set like any other.


def test_videos_are_sets_of_frames_of_any_length() -> None:
    torch.manual_seed(5)
    config = VSEConfig(
        dim=16,
        image=FeatureConfig(feature_dim=10, projection="residual"),
        text=GRUConfig(word_dim=7),
        image_pool="gpo",
        text_pool="gpo",
    )
    matcher = build(config)
    rng = np.random.default_rng(2)
    videos = [rng.standard_normal((frames, 10)).astype(np.float32) for frames in (40, 1, 7, 120, 7)]
    scores = matcher.similarity(videos, inputs.SENTENCES)
    assert scores.shape == (5, len(inputs.SENTENCES))
    for i, frames in enumerate(videos):
        alone = matcher.similarity([rng.permutation(frames)], inputs.SENTENCES)  # pooling knows no order of frames
        torch.testing.assert_close(alone[0], scores[i], **CLOSE)


def test_made_up_videos_are_told_apart_after_a_little_training() -> None:
    torch.manual_seed(6)
    rng = np.random.default_rng(3)
    kinds = ["a red dog", "two dogs", "the boat and the cat", "a small cat"]
    config = VSEConfig(
        dim=16, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=7), image_pool="gpo", text_pool="gpo"
    )
    matcher = build(config)

    def batch() -> LocalFeatures:
        """Noise, and in one frame of each video what it is about."""
        videos = [rng.standard_normal((int(rng.integers(5, 15)), 8)).astype(np.float32) / 2 for _ in kinds]
        for i, frames in enumerate(videos):
            frames[rng.integers(len(frames)), i] += 6
        return pad_regions(videos)

    tokens = matcher.tokenizer.pad([matcher.tokenizer.ids(kind) for kind in kinds])
    optimizer = torch.optim.Adam(matcher.parameters(), lr=1e-2)
    for _ in range(60):
        scores = matcher.score(*matcher(batch(), tokens))
        positives = scores.diagonal()
        others = ~torch.eye(len(kinds), dtype=torch.bool)
        loss = ((0.2 + scores - positives[:, None]).relu() + (0.2 + scores - positives[None]).relu())[others].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with matcher.inference():
        right = [(matcher.score(*matcher(batch(), tokens)).argmax(1) == torch.arange(4)).float() for _ in range(20)]
    assert torch.cat(right).mean() > 0.9


# Grids: pixels through a backbone, cells dropped while training.


class TinyBackbone(Backbone):
    def __init__(self) -> None:
        super().__init__()
        self.dim, self.grid, self.preprocess = 6, (4, 4), Preprocess(8, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.conv = torch.nn.Conv2d(3, 6, 2, stride=2)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.conv(pixels).flatten(2).transpose(1, 2)

    def save_assets(self, folder: Path) -> None:
        pass


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> VSE:
    monkeypatch.setattr(image_encoders, "load_backbone", lambda name, size, assets=None, style=None: TinyBackbone())
    config = replace(infinity(), image=PixelConfig(backbone="tiny", size=8), drop_cells=True)
    return VSE(config, inputs.word_tokenizer())


def test_grids_lose_cells_in_training_and_only_then(grid: VSE) -> None:
    pixels = Pixels(torch.randn(16, 3, 8, 8))
    grid.train()
    torch.manual_seed(1)
    first = grid.keep_images(grid.image_encoder(pixels)).vectors
    assert not torch.equal(first, grid.keep_images(grid.image_encoder(pixels)).vectors)
    torch.manual_seed(1)
    assert torch.equal(first, grid.keep_images(grid.image_encoder(pixels)).vectors)
    first.sum().backward()
    assert all(p.grad is not None for p in grid.image_encoder.parameters())
    grid.eval()
    again = grid.keep_images(grid.image_encoder(pixels)).vectors
    assert torch.equal(again, grid.keep_images(grid.image_encoder(pixels)).vectors)


def test_a_grid_pools_all_its_cells_in_eval_mode(grid: VSE) -> None:
    grid.eval()
    pixels = Pixels(torch.randn(2, 3, 8, 8))
    cells = grid.image_encoder(pixels)
    assert cells.mask.all()
    assert cells.mask.shape == (2, 16)
    texts = grid.text_encoder(inputs.texts(grid.tokenizer))
    shares = grid.see(grid.keep_images(cells), grid.keep_texts(texts), (cells, texts))["region_share"].values
    torch.testing.assert_close(shares[:, 0].sum(1), torch.ones(2))


# Configuration.


def test_a_config_survives_its_tree() -> None:
    for config in CASES.values():
        assert parse(VSEConfig, to_tree(config), "here") == config


def test_a_gpo_table_without_a_gpo_pool_is_an_error() -> None:
    with pytest.raises(DiptychError, match=r"recipe\.toml: gpo: .*image_pool"):
        parse(VSEConfig, {"gpo": {"per_dimension": True}}, "recipe.toml")


def test_dropping_cells_of_precomputed_features_is_an_error() -> None:
    with pytest.raises(DiptychError, match=r"recipe\.toml: drop_cells"):
        parse(VSEConfig, {"drop_cells": True}, "recipe.toml")


def test_an_impossible_generator_is_named() -> None:
    with pytest.raises(DiptychError, match="position_dim"):
        parse(GPOConfig, {"position_dim": 3}, "recipe.toml: gpo")
