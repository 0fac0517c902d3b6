# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""GPO's recurrence over the sets of all sizes on a GPU, forward and backward pass each as one kernel.

Its steps are tiny and follow each other: as operations of their own they are mostly waited for. Each program here goes
through one sequence, with the weights in its registers. Read onwards, all sizes are beginnings of the same sequence.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALLEST = 16


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit(do_not_specialize=["count"])
def _forward_kernel(inputs, weight, bias, states, gates, count, H: tl.constexpr, P: tl.constexpr):
    """Program 0 reads the ranks 0 … count - 1, program s > 0 the ranks s - 1 … 0.

    inputs: (2, count, 3 H), what the maps make of each rank, for r, z and n; weight: (2, 3 H, H), bias: (2, 3 H)
    states: (1 + count, count, H); gates: (1 + count, count, 4 H), r, z, n and what r is multiplied by
    """
    s = tl.program_id(0)
    side = tl.minimum(s, 1)
    length = tl.where(s > 0, s, count)
    i, j = tl.arange(0, P), tl.arange(0, P)
    there = i < H
    at, inside = i[:, None] * H + j[None, :], there[:, None] & (j < H)[None, :]
    weight += side * 3 * H * H
    w_r = tl.load(weight + at, mask=inside, other=0.0)
    w_z = tl.load(weight + H * H + at, mask=inside, other=0.0)
    w_n = tl.load(weight + 2 * H * H + at, mask=inside, other=0.0)
    bias += side * 3 * H
    b_r = tl.load(bias + i, mask=there, other=0.0)
    b_z = tl.load(bias + H + i, mask=there, other=0.0)
    b_n = tl.load(bias + 2 * H + i, mask=there, other=0.0)
    h = tl.zeros((P,), tl.float32)
    for step in range(length):
        t = tl.where(s > 0, length - 1 - step, step)
        given = inputs + (side * count + t) * 3 * H + i
        row = h[None, :]
        r = tl.sigmoid(tl.load(given, mask=there, other=0.0) + tl.sum(w_r * row, 1) + b_r)
        z = tl.sigmoid(tl.load(given + H, mask=there, other=0.0) + tl.sum(w_z * row, 1) + b_z)
        heard = tl.sum(w_n * row, 1) + b_n
        n = _tanh(tl.load(given + 2 * H, mask=there, other=0.0) + r * heard)
        h = (1 - z) * n + z * h
        place = s * count + t
        tl.store(states + place * H + i, h, mask=there)
        kept = gates + place * 4 * H + i
        tl.store(kept, r, mask=there)
        tl.store(kept + H, z, mask=there)
        tl.store(kept + 2 * H, n, mask=there)
        tl.store(kept + 3 * H, heard, mask=there)


@triton.jit(do_not_specialize=["count"])
def _backward_kernel(slopes, weight, states, gates, of_gates, count, H: tl.constexpr, P: tl.constexpr):
    """The same sequences from their ends.

    slopes: (1 + count, count, H), of the states; of_gates: (1 + count, count, 4 H), the gradients of what r, z and n
    are functions of, and of what r is multiplied by
    """
    s = tl.program_id(0)
    length = tl.where(s > 0, s, count)
    i, j = tl.arange(0, P), tl.arange(0, P)
    there = i < H
    at, inside = i[:, None] * H + j[None, :], there[:, None] & (j < H)[None, :]
    weight += tl.minimum(s, 1) * 3 * H * H
    w_r = tl.load(weight + at, mask=inside, other=0.0)
    w_z = tl.load(weight + H * H + at, mask=inside, other=0.0)
    w_n = tl.load(weight + 2 * H * H + at, mask=inside, other=0.0)
    further = tl.zeros((P,), tl.float32)
    for step in range(length):
        t = tl.where(s > 0, step, length - 1 - step)
        place = s * count + t
        kept = gates + place * 4 * H + i
        r = tl.load(kept, mask=there, other=0.0)
        z = tl.load(kept + H, mask=there, other=0.0)
        n = tl.load(kept + 2 * H, mask=there, other=0.0)
        heard = tl.load(kept + 3 * H, mask=there, other=0.0)
        # The state before: of the rank after where ranks are read backwards, and none at the beginning.
        before = tl.where(s > 0, t + 1, t - 1)
        h = tl.load(states + (s * count + before) * H + i, mask=there & (before >= 0) & (before < length), other=0.0)
        slope = tl.load(slopes + place * H + i, mask=there, other=0.0) + further
        of_n = slope * (1 - z) * (1 - n * n)
        of_z = slope * (h - n) * z * (1 - z)
        of_r = of_n * heard * r * (1 - r)
        of_heard = of_n * r
        made = of_gates + place * 4 * H + i
        tl.store(made, of_r, mask=there)
        tl.store(made + H, of_z, mask=there)
        tl.store(made + 2 * H, of_n, mask=there)
        tl.store(made + 3 * H, of_heard, mask=there)
        back = tl.sum(w_r * of_r[:, None], 0) + tl.sum(w_z * of_z[:, None], 0) + tl.sum(w_n * of_heard[:, None], 0)
        further = slope * z + back


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        count, size = inputs.shape[1], weight.shape[2]
        states = inputs.new_zeros(1 + count, count, size)
        gates = inputs.new_zeros(1 + count, count, 4 * size)
        with torch.cuda.device_of(inputs):
            _forward_kernel[(1 + count,)](
                inputs, weight, bias, states, gates, count, H=size, P=_padded(size), num_warps=1
            )
        ctx.save_for_backward(weight, states, gates)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, states, gates = ctx.saved_tensors
        _, count, size = states.shape
        of_gates = torch.zeros_like(gates)
        with torch.cuda.device_of(states):
            _backward_kernel[(1 + count,)](
                slopes.contiguous(), weight, states, gates, of_gates, count, H=size, P=_padded(size), num_warps=1
            )
        given = of_gates[..., : 3 * size]
        heard = torch.cat((of_gates[..., : 2 * size], of_gates[..., 3 * size :]), -1)
        none = states.new_zeros(1, size)
        onwards = torch.cat((none, states[0, :-1]))
        backwards = torch.cat((states[1:, 1:], none.expand(count, 1, size)), 1)
        return (
            torch.stack((given[0], given[1:].sum(0))),
            torch.stack((heard[0].T @ onwards, heard[1:].flatten(0, 1).T @ backwards.flatten(0, 1))),
            torch.stack((heard[0].sum(0), heard[1:].sum((0, 1)))),
        )


def states_of_every_size(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The states of a bidirectional GRU at the ranks of the sets of 1 … count: (count, count, 2, H), float32.

    inputs: (2, count, 3 H), what the maps make of the ranks, onwards and backwards; weight: (2, 3 H, H) and bias
    (2, 3 H) of the recurrence, in PyTorch's order of gates. A set's states past its last rank mean nothing.
    """
    states: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
        inputs.contiguous(), weight.contiguous(), bias.contiguous()
    )
    return torch.stack((states[:1].expand_as(states[1:]), states[1:]), 2)


def _padded(size: int) -> int:
    return max(SMALLEST, triton.next_power_of_2(size))
