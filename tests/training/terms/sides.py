"""Kept sides for every term: ragged, padded with garbage that must not matter, half precision."""

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.encoders.encoded import l2
from diptych.matchers.kept import Kept, kept

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@dataclass(frozen=True)
class Slotted(Kept):
    """A side with slots, as a matcher of sets keeps it."""

    slots: Tensor = kept(1)


def side(lengths: list[int], d: int = 6, seed: int = 0, padding: int = 0) -> Slotted:
    """Unit vectors and slots of any length, item by item; what is beyond an item's own is padding."""
    generator = torch.Generator().manual_seed(seed)
    n, k = len(lengths), max(lengths) + padding
    vectors = l2(torch.randn(n, k, d, generator=generator))
    slots = 3 * torch.randn(n, k, d, generator=generator)
    mask = torch.arange(k) < torch.tensor(lengths).unsqueeze(1)
    vectors, slots = (x.masked_fill(~mask.unsqueeze(-1), 77.0).requires_grad_() for x in (vectors, slots))
    return Slotted(vectors, mask, slots)
