"""Diversity: pushes the slots of a set apart, so that they do not all say the same (DivE)."""

import torch
from torch import Tensor

from diptych.encoders.encoded import l2
from diptych.matchers.kept import Kept
from diptych.training.terms.base import LossTerm


def diversity(images: Kept, texts: Kept) -> Tensor:
    """The closeness of the slots within a set, the pictures' and the sentences' summed.

    A matcher keeps `slots`, (n, K, d), before anything that all of them share is added.
    """
    return _closeness(images) + _closeness(texts)


def _closeness(side: Kept) -> Tensor:
    """Mean over pairs of real slots of exp(-2 ‖s_k - s_l‖²), slots l2-normalised; 0 where no set has two."""
    slots = side.tensors()["slots"].masked_fill(~side.mask.unsqueeze(-1), 0)  # whatever pads hold
    with torch.autocast(slots.device.type, enabled=False):
        unit = l2(slots.to(torch.promote_types(slots.dtype, torch.float32)))
        real = side.mask.to(unit.dtype)
        pairs = torch.triu(real.unsqueeze(2) * real.unsqueeze(1), 1)
        # Of unit vectors, ‖s - t‖² = 2 - 2 s.t.
        closeness = torch.exp(4 * (unit @ unit.transpose(1, 2)) - 4)
        return (closeness * pairs).sum() / pairs.sum().clamp(min=1)


DIVERSITY = LossTerm(diversity, needs=("slots",))
