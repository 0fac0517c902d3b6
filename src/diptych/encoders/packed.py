"""Sequences of unequal lengths through a recurrence, in a few operations however long they are.

PyTorch's own way copies them out again place by place, each copy with a step of its own in the backward pass: on a GPU
that takes longer than a short recurrence itself. Here all of them are gathered at once, and put back at once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from diptych.common.device import sent


@dataclass(frozen=True)
class Packing:
    """Where everything of n sequences, padded to k, goes.

    shape: n and k
    sizes: (longest,), on the CPU: how many sequences have a first element, a second, …
    rows: (elements,), where these are among all n x k, the longest sequence first
    back: (n,), where each sequence is in that order
    """

    shape: tuple[int, int]
    sizes: Tensor
    rows: Tensor
    back: Tensor


def packing(lengths: Tensor, k: int, device: torch.device) -> Packing:
    """Of sequences of these lengths (n,), on the CPU, each at least 1. The device is not waited for."""
    n = len(lengths)
    falling = lengths.sort(descending=True, stable=True)
    if int(falling.values[-1]) < 1:
        raise ValueError("a recurrence needs at least one element of each sequence, and one has none")
    places = torch.arange(int(falling.values[0])).unsqueeze(1)
    inside = places < falling.values
    rows = (falling.indices * k + places)[inside]
    back = torch.empty_like(falling.indices).scatter_(0, falling.indices, torch.arange(n))
    return Packing((n, k), inside.sum(1), sent(rows, device), sent(back, device))


def run_packed(rnn: nn.GRU, x: Tensor, packed: Packing) -> tuple[Tensor, Tensor]:
    """States (n, k, h) of a batch-first recurrence over x (n, k, w), 0 at pads, and the last ones (layers, n, h)."""
    data = x.flatten(0, 1).index_select(0, packed.rows)
    out, last = rnn(PackedSequence(data, packed.sizes))
    n, k = packed.shape
    states = out.data.new_zeros(n * k, out.data.shape[1]).index_copy_(0, packed.rows, out.data)
    return states.view(n, k, -1), last.index_select(1, packed.back)
