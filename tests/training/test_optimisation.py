import math

import pytest
import torch
from torch import nn

from diptych.common.errors import DiptychError
from diptych.training.optimisation import (
    OptimiserConfig,
    ScheduleConfig,
    build_optimiser,
    longest_prefix,
    lr_factor,
    set_learning_rate,
)


def model() -> nn.Module:
    return nn.ModuleDict(
        {"text": nn.ModuleDict({"bert": nn.Linear(2, 2), "fc": nn.Linear(2, 2)}), "image": nn.Linear(2, 2)}
    )


def test_each_part_has_its_rate() -> None:
    parts = model()
    config = OptimiserConfig(lr=1.0)
    optimiser = build_optimiser(config, parts, nn.Linear(1, 1), {"text": 0.5, "text.bert": 0.1})
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    by_name = {name: rates[id(p)] for name, p in parts.named_parameters()}
    assert by_name == {
        "text.bert.weight": 0.1, "text.bert.bias": 0.1, "text.fc.weight": 0.5, "text.fc.bias": 0.5,
        "image.weight": 1.0, "image.bias": 1.0,
    }  # fmt: skip
    set_learning_rate(optimiser, 0.5)
    assert sorted({group["lr"] for group in optimiser.param_groups}) == [0.05, 0.25, 0.5]


def test_a_prefix_that_fits_nothing_names_its_neighbour() -> None:
    with pytest.raises(DiptychError, match=r"training\.multipliers.*'text\.brt'.*'text\.bert'"):
        build_optimiser(OptimiserConfig(), model(), nn.Linear(1, 1), {"text.brt": 0.1})


def test_a_prefix_is_a_whole_part_of_the_name() -> None:
    assert longest_prefix("text.bert.weight", ["text.be", "text"]) == "text"
    assert longest_prefix("texture", ["text"]) is None


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd"])
def test_every_optimiser_takes_a_step(kind: str) -> None:
    parts = model()
    optimiser = build_optimiser(OptimiserConfig(kind=kind, lr=0.1), parts, nn.Linear(1, 1), {})  # type: ignore[arg-type]
    before = [p.clone() for p in parts.parameters()]
    sum(p.sum() for p in parts.parameters()).backward()
    optimiser.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, parts.parameters(), strict=True))


def test_schedules() -> None:
    step = ScheduleConfig("step", milestones=(15, 20), factor=0.1)
    assert [lr_factor(step, e, 25) for e in (0, 14.99, 15, 20)] == pytest.approx([1, 1, 0.1, 0.01])
    cosine = ScheduleConfig("cosine")
    assert [lr_factor(cosine, e, 10) for e in (0, 5, 10)] == pytest.approx([1, 0.5, 0])
    warm = ScheduleConfig("constant", warmup_start=1, warmup_epochs=1)
    assert [lr_factor(warm, e, 10) for e in (0.5, 1, 1.5, 2)] == pytest.approx([1, 0, 0.5, 1])
    assert lr_factor(ScheduleConfig("cosine", warmup_epochs=2), 1, 10) == pytest.approx(
        0.5 * 0.5 * (1 + math.cos(math.pi / 10))
    )
