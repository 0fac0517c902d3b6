"""Optimisers with a learning rate per part, and schedules that are pure functions of the step."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from diptych.common.bounds import check_bounds, check_share
from diptych.common.errors import DiptychError, nearest

LARGEST_RATE = 100.0  # what is above is a slip of the pen


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW, Adam or SGD."""

    kind: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: float = 5e-4
    weight_decay: float = 0.0
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_bounds(self, "lr", low=0, high=LARGEST_RATE)
        check_bounds(self, "weight_decay", low=0)
        check_share(self, "momentum")


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate over the run, in epochs (fractions allowed).

    step: multiplied by `factor` at each milestone; cosine: down to 0 at the end; constant
    warmup_epochs: linear from 0 to 1, beginning at `warmup_start`
    """

    kind: Literal["constant", "step", "cosine"] = "constant"
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    warmup_start: float = 0.0
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        check_bounds(self, "milestones", "warmup_start", "warmup_epochs", low=0)
        check_bounds(self, "factor", above=0)


def lr_factor(config: ScheduleConfig, epoch: float, epochs: int) -> float:
    """What the learning rate is multiplied by at a point of the run."""
    factor = 1.0
    if config.kind == "step":
        factor = config.factor ** sum(epoch >= milestone for milestone in config.milestones)
    elif config.kind == "cosine":
        factor = 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / epochs)))
    since = epoch - config.warmup_start
    if config.warmup_epochs > 0 and 0 <= since < config.warmup_epochs:
        factor *= since / config.warmup_epochs
    return factor


def longest_prefix(name: str, prefixes: list[str]) -> str | None:
    """The most specific of the prefixes that a parameter's dotted name begins with."""
    fitting = [p for p in prefixes if name == p or name.startswith(p + ".")]
    return max(fitting, key=len) if fitting else None


def check_prefixes(model: nn.Module, prefixes: list[str], field: str) -> None:
    """A prefix that fits no parameter is an error that names its nearest neighbour."""
    names = [name for name, _ in model.named_parameters()]
    parts = sorted({".".join(n.split(".")[: i + 1]) for n in names for i in range(n.count(".") + 1)})
    for prefix in prefixes:
        if prefix not in parts:
            raise DiptychError(f"training.{field}: no parameter begins with {prefix!r}; {nearest(prefix, parts)}")


def build_optimiser(
    config: OptimiserConfig, model: nn.Module, loss: nn.Module, multipliers: dict[str, float]
) -> torch.optim.Optimizer:
    """One parameter group a multiplier; each group remembers its own base rate as `base_lr`."""
    prefixes = list(multipliers)
    check_prefixes(model, prefixes, "multipliers")
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            prefix = longest_prefix(name, prefixes)
            groups.setdefault(1.0 if prefix is None else multipliers[prefix], []).append(parameter)
    groups.setdefault(1.0, []).extend(loss.parameters())
    parts: list[dict[str, Any]] = [
        {"params": parameters, "lr": config.lr * multiplier, "base_lr": config.lr * multiplier}
        for multiplier, parameters in groups.items()
        if parameters
    ]
    # On a GPU the whole step is one kernel a group instead of several.
    fused = True if all(p.is_cuda for part in parts for p in part["params"]) else None
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": fused}
    if config.kind == "sgd":
        return torch.optim.SGD(parts, momentum=config.momentum, **common)
    if config.kind == "adam":
        return torch.optim.Adam(parts, **common)
    return torch.optim.AdamW(parts, **common)


def set_learning_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Give every group its base rate times `factor`."""
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor
