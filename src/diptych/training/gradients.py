"""The gradient between the backward pass and the optimiser's step."""

from typing import Any

import torch
from torch import Tensor, nn


def loss_scaler(fabric: Any) -> torch.amp.GradScaler | None:
    """What multiplies the loss so that half precision does not lose small gradients; none in other precisions."""
    return getattr(fabric.strategy.precision, "scaler", None)


def clip_gradients(
    optimiser: torch.optim.Optimizer, largest: float | None, scaler: torch.amp.GradScaler | None
) -> Tensor:
    """Take the loss's scale out of the gradient, and shorten it to the norm `largest`; returns its norm before that.

    The norm is one number, of all parameters together. It stays on the device.
    """
    if scaler is not None:
        # Fabric's own way refuses fused optimisers, with which the scaler itself gets on well.
        scaler.unscale_(optimiser)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if largest is not None:
        nn.utils.clip_grads_with_norm_(parameters, largest, norm)
    return norm
