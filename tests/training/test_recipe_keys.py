"""The training loop does what every key of a recipe says.

A few steps of a tiny run are held against a loop that is written from the recipe's words: its own optimisers,
schedules, clipping, freezing and averaging. Batches and losses have tests of their own and are taken as they are.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from diptych.data.open_picture import open_picture
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.preprocess import augment
from diptych.encoders.slots import SlotAttention, SlotFeedForward
from diptych.encoders.texts import GRUConfig
from diptych.evaluation.evaluate import evaluate_matcher
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import build_matcher, build_tokenizer
from diptych.matchers.dive import DivEConfig
from diptych.matchers.vse import VSE
from diptych.training import loop
from diptych.training.batches import Augmentation, Batch, RunDataset, epoch_batches
from diptych.training.checkpoints import Position
from diptych.training.held_pictures import Views
from diptych.training.loop import Device, train
from diptych.training.losses.catalog import build_loss
from diptych.training.neighbours import NeighboursConfig, find_neighbours
from diptych.training.optimisation import OptimiserConfig, ScheduleConfig
from diptych.training.recipe import Recipe, TrainingConfig, read_recipe
from diptych.training.start import build_for
from diptych.training.terms.mmd import mmd
from tests.training import pixel_toy, toy

RATE = 1e-2
SGD = OptimiserConfig(kind="sgd", lr=RATE, momentum=0.5)
CASES: dict[str, dict[str, Any]] = {
    "adamw": {"optimiser": OptimiserConfig(lr=RATE)},
    "adamw, decay": {"optimiser": OptimiserConfig(lr=RATE, weight_decay=0.5)},
    "adam, decay": {"optimiser": OptimiserConfig(kind="adam", lr=RATE, weight_decay=0.5)},
    "sgd": {"optimiser": SGD},
    "sgd, decay": {"optimiser": OptimiserConfig(kind="sgd", lr=RATE, weight_decay=0.5, momentum=0.9)},
    "sgd, no momentum": {"optimiser": OptimiserConfig(kind="sgd", lr=RATE, momentum=0.0)},
    "batch size": {"batch_size": 5},
    "one-caption": {"sampler": "one-caption", "batch_size": 6},
    "all-captions": {"sampler": "all-captions", "batch_size": 6},
    "seed": {"seed": 3},
    "step": {"schedule": ScheduleConfig("step", milestones=(0.5, 1.25), factor=0.3)},
    "cosine": {"schedule": ScheduleConfig("cosine")},
    "warmup": {"schedule": ScheduleConfig("constant", warmup_start=0.5, warmup_epochs=1)},
    "cosine, warmup": {"schedule": ScheduleConfig("cosine", warmup_epochs=1.5)},
    "multipliers": {"multipliers": {"text_encoder": 0.1, "text_encoder.embed": 3.0}},
    "multipliers, cosine": {"multipliers": {"image_encoder": 0.1}, "schedule": ScheduleConfig("cosine")},
    "frozen": {"frozen_epochs": {"text_encoder.embed": 1, "image_encoder": 2}},
    "frozen, decay": {"optimiser": OptimiserConfig(lr=RATE, weight_decay=0.5), "frozen_epochs": {"image_encoder": 1}},
    "clip": {"optimiser": SGD, "clip": 0.05},
    "clip, adam": {"clip": 0.05},
    "a clip that is never met": {"optimiser": SGD, "clip": 1e6},
    "terms": {"optimiser": SGD, "terms": {"mmd": 2.0}},
    "terms, clip": {"optimiser": SGD, "terms": {"mmd": 2.0}, "clip": 0.5},
    "drop regions": {"drop_regions": 0.5},
    "drop words": {"drop_words": 0.5},
    "average": {"average": 0.9},
    "average, short": {"average": 0.3},
    "accumulate": {"accumulate": 3},
    "accumulate, one by one": {"accumulate": 100, "sampler": "all-captions", "batch_size": 6},
    "accumulate, terms": {"optimiser": SGD, "accumulate": 2, "terms": {"mmd": 2.0}, "clip": 0.5, "score_rows": 3},
    "score rows": {"score_rows": 3},
    "workers": {"workers": 2},
    "foils": {"foils": 1},
    "foils, several captions": {"foils": 2, "sampler": "all-captions", "batch_size": 6},
}  # fmt: skip


@dataclass
class Expected:
    """What a run should have come to."""

    weights: dict[str, Tensor]
    averaged: dict[str, Tensor]
    rates: list[float]
    gradients: list[float]
    losses: list[float]
    judged: list[dict[str, Tensor]]  # what is evaluated after each epoch
    rsums: list[float]


def schedule_of(config: ScheduleConfig, at: float, epochs: int) -> float:
    """The factor that a schedule's words give at a point of the run, in epochs."""
    factor = 1.0
    if config.kind == "step":
        for milestone in config.milestones:
            if at >= milestone:
                factor = factor * config.factor
    if config.kind == "cosine":
        factor = (1 + math.cos(math.pi * at / epochs)) / 2
    begun = at - config.warmup_start
    if 0 <= begun < config.warmup_epochs:
        factor = factor * begun / config.warmup_epochs
    return factor


def longest(name: str, table: dict[str, Any]) -> Any:
    """What a table says of a parameter; of two names that fit the longer counts."""
    fitting = sorted((prefix for prefix in table if name.startswith(prefix + ".")), key=len)
    return table[fitting[-1]] if fitting else None


def moved(config: OptimiserConfig, weight: Tensor, gradient: Tensor, rate: float, memory: dict[str, Any]) -> Tensor:
    """A weight after one step, by the optimisers' own formulas."""
    if config.kind != "adamw":
        gradient = gradient + config.weight_decay * weight
    if config.kind == "sgd":
        memory["v"] = config.momentum * memory["v"] + gradient if "v" in memory else gradient
        return weight - rate * memory["v"]
    if config.kind == "adamw":
        weight = weight - rate * config.weight_decay * weight
    t = memory["t"] = memory.get("t", 0) + 1
    memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * gradient
    memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * gradient**2
    return weight - rate * (memory["m"] / (1 - 0.9**t)) / ((memory["s"] / (1 - 0.999**t)).sqrt() + 1e-8)


def slow(recipe: Recipe) -> Expected:
    """The run, step by step."""
    c, data = recipe.training, toy.splits()
    torch.manual_seed(c.seed)
    matcher = build_for(recipe, data)
    loss_function = build_loss(recipe.loss)
    memory: dict[str, dict[str, Any]] = {}
    out = Expected({}, {n: p.detach().clone() for n, p in matcher.named_parameters()}, [], [], [], [], [])
    dataset = RunDataset(
        data.train,
        matcher.tokenizer,
        None,
        Augmentation(drop_regions=c.drop_regions, drop_words=c.drop_words, foils=c.foils),
        lambda epoch: epoch_batches(data.train, c.sampler, c.batch_size, c.seed, epoch),
        c.seed,
    )
    taken = 0
    for epoch in range(c.epochs):
        steps = len(dataset.batches(epoch))
        for step in range(steps):
            batch = dataset[epoch, step]
            matcher.train().zero_grad()
            images, texts = matcher(batch.images, batch.texts)
            positive = batch.picture_ids[:, None] == batch.picture_ids[batch.owners][None]
            foils = len(batch.texts) - len(batch.owners)
            assert bool(foils) == bool(c.foils)
            positive = torch.cat([positive, torch.zeros(len(positive), foils, dtype=torch.bool)], 1)
            loss = loss_function(matcher.score(images, texts), batch.owners, positive, epoch)
            if "mmd" in c.terms:
                loss = loss + c.terms["mmd"] * mmd(images, texts)
            loss.backward()
            gradients = {
                name: parameter.grad
                for name, parameter in matcher.named_parameters()
                if parameter.grad is not None and not epoch < (longest(name, c.frozen_epochs) or 0)
            }
            norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients.values()))
            shorter = 1.0 if c.clip is None or norm <= c.clip else c.clip / norm
            factor = schedule_of(c.schedule, epoch + step / steps, c.epochs)
            with torch.no_grad():
                for name, parameter in matcher.named_parameters():
                    if name in gradients:
                        multiplier = longest(name, c.multipliers)
                        rate = c.optimiser.lr * (1.0 if multiplier is None else multiplier) * factor
                        remembered = memory.setdefault(name, {})
                        parameter.copy_(moved(c.optimiser, parameter, gradients[name] * shorter, rate, remembered))
                taken += 1
                decay = min(c.average or 0.0, (1 + taken) / (10 + taken))
                for name, parameter in matcher.named_parameters():
                    out.averaged[name] = decay * out.averaged[name] + (1 - decay) * parameter
            out.rates.append(c.optimiser.lr * factor)
            out.gradients.append(norm)
            out.losses.append(float(loss.detach()))
        out.weights = {name: parameter.detach().clone() for name, parameter in matcher.named_parameters()}
        judged = build_matcher(recipe.model, matcher.tokenizer)
        judged.load_state_dict({**matcher.state_dict(), **out.averaged})
        out.judged.append(dict(out.averaged))
        out.rsums.append(evaluate_matcher(judged.eval(), data.validation).figures["rsum"])
    return out


def lines(run: Path, key: str) -> list[Any]:
    """What metrics.jsonl says under a key."""
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry[key] for entry in entries if key in entry]


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_what_its_recipe_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[dict[str, Tensor]] = []
    validate = loop.validate

    def noted(matcher: Matcher, *rest: Any) -> dict[str, float]:
        judged.append({part: parameter.detach().clone() for part, parameter in matcher.named_parameters()})
        return validate(matcher, *rest)

    monkeypatch.setattr(loop, "validate", noted)
    recipe = toy.recipe(**{"epochs": 2, "optimiser": OptimiserConfig(lr=RATE), **CASES[name]})
    train(recipe, tmp_path / "run", Device("cpu"), toy.splits())
    expected = slow(recipe)
    near = {"atol": 2e-5, "rtol": 1e-3}
    saved = load_file(tmp_path / "run" / "last" / "model.safetensors")
    for part, tensor in expected.averaged.items():
        torch.testing.assert_close(saved[part], tensor, **near, msg=lambda m, p=part: f"{p}: {m}")
    if recipe.training.average is not None:
        raw = torch.load(tmp_path / "run" / "last" / "trainer.pt", weights_only=True)["raw"]
        for part, tensor in expected.weights.items():
            torch.testing.assert_close(raw[part], tensor, **near, msg=lambda m, p=part: f"{p}: {m}")
    for found, wanted in zip(judged, expected.judged, strict=True):
        for part, tensor in wanted.items():
            torch.testing.assert_close(found[part], tensor, **near, msg=lambda m, p=part: f"judged {p}: {m}")
    assert lines(tmp_path / "run", "loss") == pytest.approx(expected.losses, abs=1e-4, rel=1e-3)
    assert lines(tmp_path / "run", "gradient") == pytest.approx(expected.gradients, abs=1e-4, rel=1e-3)
    if not recipe.training.multipliers:
        assert lines(tmp_path / "run", "lr") == pytest.approx(expected.rates)
    told = [figures["rsum"] for figures in lines(tmp_path / "run", "validation")]
    assert told == pytest.approx(expected.rsums)


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"adamw", "a clip that is never met", "accumulate", "score rows", "workers"})
)
def test_every_case_is_another_run(name: str) -> None:
    """Else the test above would hold nothing."""
    optimiser = CASES[name].get("optimiser", OptimiserConfig(lr=RATE))
    default = OptimiserConfig(lr=RATE) if set(CASES[name]) == {"optimiser"} else optimiser
    plain = slow(toy.recipe(epochs=2, optimiser=default))
    told = slow(toy.recipe(**{"epochs": 2, "optimiser": optimiser, **CASES[name]}))
    far = max(float((told.averaged[part] - plain.averaged[part]).abs().max()) for part in plain.averaged)
    assert far > 1e-3


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """The batches that steps are given from now on."""
    seen: list[Batch] = []
    step = loop.Trainer._step

    def watched(self: loop.Trainer, batch: Batch, epoch: int) -> Any:
        seen.append(batch)
        return step(self, batch, epoch)

    monkeypatch.setattr(loop.Trainer, "_step", watched)
    return seen


@pytest.mark.parametrize("augmented", [False, True])
def test_augment_crops_and_mirrors_pictures(augmented: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, data = pixel_toy.recipe(tmp_path, epochs=1, augment=augmented), pixel_toy.splits()
    seen = watch(monkeypatch)
    train(recipe, tmp_path / "run", Device("cpu"), data)
    preprocess = build_for(recipe, data).preprocess
    assert preprocess is not None
    for step, batch in enumerate(seen):
        draw = np.random.default_rng([recipe.training.seed, 0, step, 0])
        generator = torch.Generator().manual_seed(int(draw.integers(2**62)))
        for row, picture in enumerate(batch.picture_ids.tolist()):
            opened = data.train.items[picture].open
            assert opened is not None
            plain = open_picture(opened)
            pixels = preprocess.pixels(augment(plain, generator) if augmented else plain)
            assert np.array_equal(batch.images.values[row].numpy(), pixels)  # type: ignore[union-attr]


def test_hold_pictures_keeps_squares_of_its_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, held = watch(monkeypatch), []
    begin = loop.Trainer.run_all

    def noted(self: loop.Trainer) -> loop.Outcome:
        held.append(self.held)
        return begin(self)

    monkeypatch.setattr(loop.Trainer, "run_all", noted)
    train(pixel_toy.recipe(tmp_path, epochs=1, hold_pictures=40), tmp_path / "run", Device("cpu"), pixel_toy.splits())
    assert held[0] is not None
    assert held[0].pixels.shape == (8, 40, 40, 3)
    assert all(isinstance(batch.images, Views) for batch in seen)
    train(pixel_toy.recipe(tmp_path, epochs=1), tmp_path / "not", Device("cpu"), pixel_toy.splits())
    assert held[1] is None


@pytest.mark.parametrize(("every", "evaluated"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3, 4]), (3, [2, 4]), (9, [4])])
def test_evaluations_come_every_so_many_epochs_and_at_the_end(every: int, evaluated: list[int], tmp_path: Path) -> None:
    train(toy.recipe(epochs=5, evaluate_epochs=every), tmp_path / "run", Device("cpu"), toy.splits())
    entries = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in entries if "validation" in entry] == evaluated


@pytest.mark.parametrize(("every", "saved"), [(None, [4, 8]), (1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 4, 6, 8])])
def test_checkpoints_come_every_so_many_steps(
    every: int | None, saved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: list[int] = []
    save: Callable[..., None] = loop.save_checkpoint

    def noted(run: Path, trained: Any, position: Position, *rest: Any) -> None:
        totals.append(position.total)
        save(run, trained, position, *rest)

    monkeypatch.setattr(loop, "save_checkpoint", noted)
    train(toy.recipe(epochs=2, checkpoint_steps=every), tmp_path / "run", Device("cpu"), toy.splits())
    assert totals == saved


@pytest.mark.parametrize(("patience", "epochs"), [(None, 6), (1, 2), (3, 4)])
def test_patience_is_how_many_epochs_may_bring_nothing(patience: int | None, epochs: int, tmp_path: Path) -> None:
    still = OptimiserConfig(kind="sgd", lr=0.0)
    recipe = toy.recipe(epochs=6, patience=patience, optimiser=still)
    assert train(recipe, tmp_path / "run", Device("cpu"), toy.splits()).position.epoch == epochs


@pytest.mark.parametrize(("precision", "dtype"), [("float32", None), ("bf16", torch.bfloat16)])
def test_encoders_run_in_the_precision_and_scores_in_float32(
    precision: str, dtype: torch.dtype | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[torch.dtype | None] = []
    scored: list[torch.dtype] = []
    forward, score = VSE.forward, VSE.score

    def noted(self: VSE, *sides: Any) -> Any:
        encoded.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        return forward(self, *sides)

    def noted_score(self: VSE, images: Any, texts: Any) -> Tensor:
        scored.append(images.vectors.dtype)
        assert not torch.is_autocast_enabled("cpu")
        return score(self, images, texts)

    monkeypatch.setattr(VSE, "forward", noted)
    monkeypatch.setattr(VSE, "score", noted_score)
    train(toy.recipe(epochs=1, precision=precision), tmp_path / "run", Device("cpu"), toy.splits())
    assert set(encoded) == {dtype}
    assert set(scored) == {torch.float32}


def test_neighbours_make_the_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = toy.splits(), tmp_path / "model"
    build_for(toy.recipe(), data).save_pretrained(model)
    near = NeighboursConfig(str(model), group=2, depth=3)
    seen: list[list[int]] = []
    step = loop.Trainer._step

    def noted(self: loop.Trainer, batch: Batch, epoch: int) -> Any:
        seen.append(batch.picture_ids.tolist())
        return step(self, batch, epoch)

    monkeypatch.setattr(loop.Trainer, "_step", noted)
    recipe = toy.recipe(epochs=2, sampler="one-caption", batch_size=6, neighbours=near)
    train(recipe, tmp_path / "run", Device("cpu"), splits=data)
    alike = find_neighbours(near, data.train, None, torch.device("cpu"))
    wanted = [
        [picture for picture, _ in batch]
        for epoch in range(2)
        for batch in epoch_batches(data.train, "one-caption", 6, recipe.training.seed, epoch, alike, 2)
    ]
    assert seen == wanted
    assert seen != [
        [picture for picture, _ in batch]
        for epoch in range(2)
        for batch in epoch_batches(data.train, "one-caption", 6, recipe.training.seed, epoch)
    ]


def test_every_key_has_a_test() -> None:
    held = {key for case in CASES.values() for key in case}
    here = {"epochs", "augment", "hold_pictures", "evaluate_epochs", "checkpoint_steps", "patience", "precision"}
    elsewhere = {"compile", "tensorboard", "wandb"}  # test_compiled.py, test_loop.py, test_trackers.py
    here |= {"neighbours"}
    elsewhere |= {"hold_features", "hold_sentences"}  # test_held_features.py, test_held_sentences.py
    assert held | here | elsewhere == {f.name for f in fields(TrainingConfig)}


@pytest.mark.parametrize("dropout", [None, 0.3])
def test_dives_slots_drop_out_as_much_as_is_said(dropout: float | None) -> None:
    settings = {} if dropout is None else {"dropout": dropout}
    config = DivEConfig(
        dim=8, image=FeatureConfig(feature_dim=8), text=GRUConfig(word_dim=6), heads=2, head_dim=4, **settings
    )
    matcher = build_matcher(config, build_tokenizer(config.text, Vocabulary.build(["a dog"], 1)))
    found = [m.dropout.p for m in matcher.modules() if isinstance(m, SlotAttention | SlotFeedForward)]
    assert found == [0.1 if dropout is None else dropout] * 4  # both of both sides


def test_camp_reads_fifty_tokens_of_a_sentence() -> None:
    words = Vocabulary.build(["dog"], 1)
    assert len(build_tokenizer(CAMPConfig().text, words).ids("dog " * 100)) == 50
    # The grid recipes give every paper's model one and the same text encoder.
    own = [path for path in Path(__file__).parents[2].glob("recipes/camp-*.toml") if "grid" not in path.name]
    texts = [read_recipe(path).model.text for path in own]
    grus = [text for text in texts if isinstance(text, GRUConfig)]
    assert len(grus) >= 4
    assert all(len(build_tokenizer(text, words).ids("dog " * 100)) == 50 for text in grus)
