"""Items of like length, so that little padding is computed."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

# A group of fewer items is filled up with shorter ones: so small a call costs more than the padding it would save.
WORTHWHILE = 16


def like_lengths(lengths: Tensor, most: Callable[[int], int] | None = None) -> list[Tensor]:
    """Split items (n,) into groups of like length: positions, each once, longest first.

    most: the largest group for a given longest length; without it, any size
    Within a group lengths differ by an eighth at most, unless it would have fewer than 16 items.
    """
    lengths = lengths.cpu()
    if len(lengths) and _one_group(lengths, most):
        return [torch.arange(len(lengths))]
    order = lengths.argsort(descending=True, stable=True)
    # Ascending, so that the end of a run of like lengths is found by halving.
    shorter = -lengths[order].numpy()
    groups = []
    start = 0
    while start < len(shorter):
        longest = -int(shorter[start])
        like = int(np.searchsorted(shorter, -_shortest(longest), side="right"))
        last = len(shorter) if most is None else start + max(1, most(longest))
        end = min(len(shorter), last, max(like, start + WORTHWHILE))
        groups.append(order[start:end].sort().values)
        start = end
    return groups


def _shortest(longest: int) -> int:
    """The least length that is like another."""
    return longest - max(1, longest // 8)


def _one_group(lengths: Tensor, most: Callable[[int], int] | None) -> bool:
    """Whether nothing is split, as where all are equal: then nothing need be sorted."""
    shortest, longest = (int(length) for length in lengths.aminmax())
    alike = shortest >= _shortest(longest) or len(lengths) <= WORTHWHILE
    return alike and (most is None or most(longest) >= len(lengths))
