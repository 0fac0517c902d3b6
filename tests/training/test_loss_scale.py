"""Half precision scales the loss: nothing that a recipe says may see the scale.

A CPU has no half precision to train in, so these runs only scale, by powers of two: all else is float32, and a run with
a scale must be the run without one, to the bit.
"""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.precision import MixedPrecision
from safetensors.torch import load_file

from diptych.training import loop
from diptych.training.loop import Device, Outcome, train
from diptych.training.optimisation import OptimiserConfig
from diptych.training.recipe import Recipe
from tests.training import toy
from tests.training.test_loop_loss import interrupt_after

SGD = OptimiserConfig(kind="sgd", lr=0.5)


class Scaling(MixedPrecision):
    """The loss scale of half precision, and no half precision."""

    def __init__(self) -> None:
        super().__init__("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=3))

    def forward_context(self) -> AbstractContextManager[Any]:
        return nullcontext()


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*ignored: object) -> Fabric:
        fabric = Fabric(accelerator="cpu", devices=1, plugins=[Scaling()])
        fabric.launch()
        return fabric

    monkeypatch.setattr(loop, "launch", launch)


def go(recipe: Recipe, run: Path) -> Outcome:
    return train(recipe, run, Device("cpu"), toy.splits())


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "last" / "model.safetensors")


def scaler(run: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(run / "last" / "trainer.pt", weights_only=True)
    return state["scaler"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("clip", [None, 0.01, 100.0])
def test_the_gradient_is_clipped_without_the_scale(
    clip: float | None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recipe = toy.recipe(epochs=1, clip=clip, optimiser=SGD)
    go(recipe, tmp_path / "plain")
    request.getfixturevalue("scaling")
    go(recipe, tmp_path / "scaled")
    assert (tmp_path / "plain/metrics.jsonl").read_text() == (tmp_path / "scaled/metrics.jsonl").read_text()
    for name, tensor in weights(tmp_path / "plain").items():
        assert torch.equal(weights(tmp_path / "scaled")[name], tensor), name


@pytest.mark.usefixtures("scaling")
def test_the_scale_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy.recipe(epochs=2, optimiser=SGD)
    assert go(recipe, tmp_path / "unbroken").position.total == 8
    assert scaler(tmp_path / "unbroken")["scale"] == 2.0**18  # it doubles every third step
    assert scaler(tmp_path / "unbroken")["_growth_tracker"] == 2
    interrupt_after(4, recipe, tmp_path / "broken", monkeypatch)
    assert scaler(tmp_path / "broken")["scale"] == 2.0**17
    assert go(recipe, tmp_path / "broken").finished
    assert scaler(tmp_path / "broken") == scaler(tmp_path / "unbroken")


@pytest.mark.usefixtures("scaling")
def test_a_checkpoint_from_before_scales_were_kept_still_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy.recipe(epochs=2, optimiser=SGD)
    interrupt_after(4, recipe, tmp_path / "run", monkeypatch)
    path = tmp_path / "run" / "last" / "trainer.pt"
    state = torch.load(path, weights_only=True)
    del state["scaler"]
    torch.save(state, path)
    assert go(recipe, tmp_path / "run").finished


def test_a_run_without_a_scale_keeps_none(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "run")
    assert "scaler" not in torch.load(tmp_path / "run" / "last" / "trainer.pt", weights_only=True)
