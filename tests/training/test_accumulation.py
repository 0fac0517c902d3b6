"""A batch encoded in parts has the loss and the gradient of the whole batch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.dive import DivEConfig
from diptych.matchers.kept import Kept
from diptych.training import loop
from diptych.training.accumulation import Parts, split, trained_statistics, untouched_statistics
from diptych.training.batches import Batch
from diptych.training.loop import Device, train
from diptych.training.losses.catalog import build_loss
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.optimisation import OptimiserConfig
from tests.matchers.cases import CASES
from tests.matchers.inputs import images, texts, word_tokenizer
from tests.training import pixel_toy, toy
from tests.training.test_loop import in_a_process, metrics, weights

OWNERS = torch.tensor([0, 1, 2, 3, 3, 4])
NAMES = ["vse-infinity", "scan-t2i-lse", "camp", "mmca-gru", "dive", "dive-random-slots"]


def matcher_of(name: str) -> Matcher:
    torch.manual_seed(0)
    return build_matcher(CASES[name], word_tokenizer()).train()


def batch_of(matcher: Matcher) -> Batch:
    return Batch(images(), texts(matcher.tokenizer), torch.arange(5), OWNERS)


def seeded(matcher: Matcher, number: int, part: Batch) -> tuple[Kept, Kept]:
    torch.manual_seed(number)
    return matcher(part.images, part.texts)


def loss_of(matcher: Matcher, kept: tuple[Kept, Kept]) -> Tensor:
    positive = torch.arange(5)[:, None] == OWNERS[None]
    torch.manual_seed(99)
    return build_loss(HingeConfig(negatives="all"))(matcher.score(*kept), OWNERS, positive, 0)


def gradients(matcher: Matcher) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in matcher.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", [name for name in NAMES if name in CASES])
def test_parts_have_the_gradient_of_their_graphs_held_together(name: str, count: int) -> None:
    """Dropout, random slots and BatchNorm included: what a part drew the first time it draws again."""
    held = matcher_of(name)
    batch = batch_of(held)
    sides = [seeded(held, number, part) for number, part in enumerate(split(batch, count))]
    pictures, sentences = zip(*sides, strict=True)
    whole = loss_of(held, (type(pictures[0]).cat(pictures), type(sentences[0]).cat(sentences)))
    whole.backward()

    parted = matcher_of(name)
    parts = Parts(batch, count, lambda number, part: seeded(parted, number, part))
    with untouched_statistics(parted):
        kept = parts.kept()
    loss = loss_of(parted, kept)
    loss.backward()
    parts.backward()
    torch.testing.assert_close(loss, whole)
    expected, found = gradients(held), gradients(parted)
    assert found.keys() == expected.keys()
    assert any(float(g.abs().max()) > 1e-3 for g in expected.values())
    for part in expected:
        torch.testing.assert_close(found[part], expected[part], msg=lambda m, part=part: f"{part}: {m}")
    for part, buffer in held.named_buffers():
        torch.testing.assert_close(dict(parted.named_buffers())[part], buffer)


@pytest.mark.parametrize("name", [name for name in NAMES if name in CASES and name != "dive-random-slots"])
def test_without_chance_the_gradient_is_that_of_the_whole_batch(name: str) -> None:
    whole, parted = matcher_of(name).eval(), matcher_of(name).eval()
    batch = batch_of(whole)
    loss_of(whole, whole(batch.images, batch.texts)).backward()
    parts = Parts(batch, 3, lambda number, part: parted(part.images, part.texts))
    loss_of(parted, parts.kept()).backward()
    parts.backward()
    expected, found = gradients(whole), gradients(parted)
    assert found.keys() == expected.keys()
    for part in expected:
        torch.testing.assert_close(found[part], expected[part], msg=lambda m, part=part: f"{part}: {m}")


def test_the_cases_are_there() -> None:
    assert len([name for name in NAMES if name in CASES]) == len(NAMES)


def test_parts_are_nearly_equal_and_hold_everything_once() -> None:
    matcher = matcher_of("camp")
    batch = batch_of(matcher)
    parts = split(batch, 4)
    assert [len(part.images) for part in parts] == [2, 1, 1, 1]
    assert [len(part.texts) for part in parts] == [2, 2, 1, 1]
    assert torch.equal(torch.cat([part.texts.ids for part in parts]), batch.texts.ids)
    assert torch.equal(torch.cat([part.images.vectors for part in parts]), images().vectors)  # type: ignore[union-attr]
    assert len(split(batch, 100)) == 5  # as many as there are pictures


def test_a_frozen_side_is_left_alone() -> None:
    matcher = matcher_of("camp")
    matcher.text_encoder.requires_grad_(False)
    batch = batch_of(matcher)
    parts = Parts(batch, 2, lambda number, part: matcher(part.images, part.texts))
    loss_of(matcher, parts.kept()).backward()
    parts.backward()
    assert not any(name.startswith("text_encoder") for name in gradients(matcher))
    assert any(name.startswith("image_encoder") for name in gradients(matcher))


def test_statistics_that_are_fixed_are_not_trained() -> None:
    layers = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3)).train()
    layers[0].eval()
    assert trained_statistics(layers) == [layers[1]]


def test_a_run_on_pictures_in_parts_is_the_run_on_the_whole_batch(tmp_path: Path) -> None:
    for name, settings in {"whole": {}, "parts": {"accumulate": 3}}.items():
        recipe = pixel_toy.recipe(tmp_path, epochs=2, hold_pictures=40, **settings)
        model = recipe.model.__class__(**{**vars(recipe.model), "drop_cells": False})
        recipe = recipe.__class__(**{**vars(recipe), "model": model, "loss": InfoNCEConfig()})
        train(recipe, tmp_path / name, Device("cpu"), pixel_toy.splits())
    whole, parts = metrics(tmp_path / "whole"), metrics(tmp_path / "parts")
    assert [e["loss"] for e in parts if "loss" in e] == pytest.approx([e["loss"] for e in whole if "loss" in e], 1e-3)
    for name, tensor in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "parts")[name], tensor, atol=2e-4, rtol=1e-3)


def test_two_processes_in_parts_end_with_the_weights_of_one(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert in_a_process(tmp_path / "one") == 0
    assert in_a_process(tmp_path / "two", "accumulate", launcher=launcher) == 0
    actual = weights(tmp_path / "two")
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(actual[name], tensor, atol=1e-4, rtol=1e-3, msg=name)


def test_a_killed_run_in_parts_ends_with_the_weights_of_an_unbroken_one(tmp_path: Path) -> None:
    """With dropout, which each part draws anew."""
    model = DivEConfig(**{**vars(CASES["dive"]), "image": toy.recipe().model.image, "dropout": 0.3})
    whole = toy.recipe(model=model, accumulate=2, checkpoint_steps=1)
    train(whole, tmp_path / "unbroken", Device("cpu"), toy.splits())
    train(toy.recipe(model=model, accumulate=2, epochs=1), tmp_path / "run", Device("cpu"), toy.splits())
    train(toy.recipe(model=model, accumulate=2, epochs=2), tmp_path / "run", Device("cpu"), toy.splits())
    for name, tensor in weights(tmp_path / "unbroken").items():
        assert torch.equal(weights(tmp_path / "run")[name], tensor), name


def test_a_part_of_a_run_is_the_same_both_times_it_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout included; other parts and other steps draw otherwise."""
    encoded: dict[tuple[int, int], list[Tensor]] = {}
    encode = loop.Trainer._encode_part

    def noted(self: loop.Trainer, number: int, part: Batch) -> tuple[Kept, Kept]:
        kept = encode(self, number, part)
        encoded.setdefault((self.position.total, number), []).append(kept[0].vectors.detach().clone())
        return kept

    monkeypatch.setattr(loop.Trainer, "_encode_part", noted)
    still = OptimiserConfig(kind="sgd", lr=0.0)
    model = DivEConfig(**{**vars(CASES["dive"]), "image": toy.recipe().model.image, "dropout": 0.3})
    train(toy.recipe(model=model, accumulate=2, epochs=1, optimiser=still), tmp_path, Device("cpu"), toy.splits())
    assert sorted(encoded) == [(step, number) for step in range(4) for number in range(2)]
    for first, second in encoded.values():
        assert torch.equal(first, second)
