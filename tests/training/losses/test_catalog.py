"""What every loss has in common, and what runs on disk say of it."""

from typing import Any, get_args

import pytest
import torch

from diptych.common.config import parse, to_tree
from diptych.training.losses.base import Loss
from diptych.training.losses.catalog import LossConfig, build_loss
from tests.training.losses import test_bce, test_hinge, test_info_nce, test_sigmoid
from tests.training.losses.batches import BATCHES, batch, every_batch

# A loss that is new in the catalog is among them by itself.
CONFIGS: list[LossConfig] = [
    *(config() for config in get_args(LossConfig)),
    *test_hinge.CONFIGS,
    *test_bce.CONFIGS,
    *test_info_nce.CONFIGS,
    *test_sigmoid.CONFIGS,
]
every_loss = pytest.mark.parametrize("config", CONFIGS, ids=str)

# As runs write them: the loss of recipe.json, and the names of its state in trainer.pt.
ON_DISK: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"kind": "hinge", "margin": 0.1, "negatives": "mean", "reduction": "sum", "all_negatives_epochs": 3},
        [],
    ),
    (
        {"kind": "bce", "negatives": "all", "reduction": "sum", "all_negatives_epochs": 1, "learned_scale": False},
        [],
    ),
    (
        {"kind": "bce", "negatives": "all", "reduction": "mean", "all_negatives_epochs": 0, "learned_scale": True},
        ["log_scale", "bias"],
    ),
    ({"kind": "infonce", "temperature": 0.05, "reduction": "sum"}, ["log_scale"]),
    ({"kind": "sigmoid", "scale": 5.0, "bias": -3.0, "reduction": "sum"}, ["log_scale", "bias"]),
]


def config_of(tree: dict[str, Any]) -> LossConfig:
    kinds = {cls().kind: cls for cls in get_args(LossConfig)}
    config: LossConfig = parse(kinds[tree["kind"]], tree, "recipe.json: loss")
    return config


@pytest.mark.parametrize(("tree", "names"), ON_DISK, ids=str)
def test_what_runs_on_disk_hold_is_what_a_loss_reads_and_writes(tree: dict[str, Any], names: list[str]) -> None:
    config = config_of(tree)
    assert {**to_tree(config), **tree} == to_tree(config)  # keys that came later have their defaults
    loss = build_loss(config)
    assert list(loss.state_dict()) == names
    assert [name for name, _ in loss.named_parameters()] == names  # in the order that the optimiser's state has
    loss.load_state_dict({name: torch.tensor(0.25) for name in names})


@every_loss
@every_batch
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(config: LossConfig, name: str, dtype: torch.dtype) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    half = scores.detach().to(dtype).requires_grad_()
    loss: Loss = build_loss(config)
    value = loss(half, owners, positive)
    assert value.dtype == dtype
    expected = loss.double()(half.double(), owners, positive)
    torch.testing.assert_close(value.double(), expected, atol=0.1, rtol=0.03)
    (gradient,) = torch.autograd.grad(value, half)
    assert gradient.isfinite().all()


@every_loss
@every_batch
def test_the_order_of_captions_and_pictures_is_nothing_to_a_loss(config: LossConfig, name: str) -> None:
    scores, owners, positive = batch(*BATCHES[name])
    loss = build_loss(config).double()
    pictures, count = torch.arange(len(scores)).flip(0), len(owners)
    captions = torch.cat([torch.arange(count).flip(0), torch.arange(count, scores.shape[1]).flip(0)])
    flipped = len(scores) - 1 - owners.flip(0)
    again = loss(scores[pictures][:, captions], flipped, positive[pictures][:, captions])
    torch.testing.assert_close(again, loss(scores, owners, positive), atol=1e-9, rtol=1e-9)


def test_learned_parameters_get_gradients() -> None:
    scores, owners, positive = batch(*BATCHES["several captions"])
    for tree, names in ON_DISK:
        loss = build_loss(config_of(tree))
        loss(scores.float(), owners, positive).backward()
        assert all(p.grad is not None and p.grad.abs() > 0 for p in loss.parameters())
        assert len(list(loss.parameters())) == len(names)
