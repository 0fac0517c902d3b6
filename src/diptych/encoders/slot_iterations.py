"""The iterations of set prediction as one step of the graph.

Each is a dozen small operations on a few hundred slots, so that a GPU would mostly wait for them to be asked for. Here
forward and backward pass are written out: nothing is recorded and nothing laid out anew that need not be, and as all
iterations share their weights, the gradient of a weight is one product over all of them, at the end.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

EPSILON = 1e-7  # beside the sum that a slot's weights are divided by


@dataclass(frozen=True)
class Iterating:
    """What of the iterations is no tensor.

    count: how many; pad_share: what a pad has of each slot before the division by the slot's sum
    epsilons: of the two layer norms; dropouts: of what a slot gathers, and within the FFN
    """

    count: int
    pad_share: float
    epsilons: tuple[float, float]
    dropouts: tuple[float, float]


class SlotWeights(NamedTuple):
    """The parameters: LN and maps of the attention, then LN and the two layers of the FFN."""

    norm: Tensor
    norm_bias: Tensor
    to_q: Tensor
    to_out: Tensor
    to_out_bias: Tensor
    ffn_norm: Tensor
    ffn_norm_bias: Tensor
    fc1: Tensor
    fc1_bias: Tensor
    fc2: Tensor
    fc2_bias: Tensor


def iterate_slots(
    how: Iterating, slots: Tensor, keys: Tensor, values: Tensor, mask: Tensor, weights: SlotWeights
) -> tuple[Tensor, Tensor]:
    """Slots (n, K, d) after slots += dropout(to_out(attention)), slots += FFN(LN(slots)), again and again.

    keys, values: (n, heads, inputs, head_dim), in whose type products are computed; mask: (n, inputs)
    Also the weights of each input in each slot: (iterations, n, heads, K, inputs), without gradient.
    """
    # Heads first: what a slot asks for is then laid out by the product that makes it.
    keys, values = (x.transpose(0, 1).contiguous() for x in (keys, values))
    out, taken = _Iterations.apply(how, mask, slots, keys, values, *weights)  # type: ignore[no-untyped-call]
    return out, taken.transpose(1, 2)


class _Iterations(torch.autograd.Function):
    """All of them; products are in the type of keys and values, all else in the type of the slots."""

    @staticmethod
    def forward(
        ctx: Any, how: Iterating, mask: Tensor, slots: Tensor, keys: Tensor, values: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(slots.device.type, enabled=False):
            passed = _Passed(how, ~mask.unsqueeze(1), slots, keys, values, SlotWeights(*weights))
            out = passed.forward(slots)
        ctx.save_for_backward(*weights)  # so that nobody changes them before the backward pass
        ctx.passed = passed
        ctx.mark_non_differentiable(passed.weights)
        return out, passed.weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        assert len(ctx.saved_tensors) == len(SlotWeights._fields)
        with torch.autocast(gradient.device.type, enabled=False):
            return None, None, *ctx.passed.backward(gradient)


class _Passed:
    """The iterations, and what the backward pass needs of each.

    Shapes: n items of k slots, n k rows in all; h heads of c numbers. What is asked for by iteration is unbound once:
    a view is nearly as long in coming as a product.
    """

    def __init__(
        self, how: Iterating, pads: Tensor, slots: Tensor, keys: Tensor, values: Tensor, full: SlotWeights
    ) -> None:
        """pads: (n, 1, inputs); slots: (n, k, d); keys, values: (h, n, inputs, c)"""
        (n, k, d), (h, _, inputs, c) = slots.shape, keys.shape
        self.how, self.pads, self.full, self.half = how, pads, full, _in_type(full, keys.dtype)
        self.sizes = n, k, d, h, inputs, c
        self.keys, self.values = (keys / math.sqrt(c)).view(h * n, inputs, c), values.view(h * n, inputs, c)
        rows, steps = n * k, how.count
        self.slots = slots.new_empty(steps, rows, d)  # before each iteration
        self.between = slots.new_empty(steps, rows, d)  # after its attention
        self.asking = keys.new_empty(steps, rows, d)  # LN(slots)
        self.thinking = keys.new_empty(steps, rows, d)  # LN(between)
        self.heard = keys.new_empty(steps, rows, h * c)  # what the heads gather
        self.hidden = keys.new_empty(steps, rows, len(full.fc1))  # the FFN before its GELU
        self.weights = slots.new_empty(steps, h, n, k, inputs)
        self.queries: list[Tensor] = []  # (h n, k, c)
        self.shares: list[Tensor] = []  # (h, n, k, inputs), of which the weights are made
        self.taken: list[Tensor] = []  # (h n, k, inputs), the weights in the products' type
        self.active: list[Tensor] = []  # (rows, f), the FFN after GELU and dropout
        self.statistics: list[tuple[Tensor, ...]] = []  # of both layer norms
        self.left: list[tuple[Tensor | None, Tensor | None]] = []  # by both dropouts

    def forward(self, slots: Tensor) -> Tensor:
        """(n, k, d) -> (n, k, d)."""
        (n, k, d, h, inputs, c), how, full, half = self.sizes, self.how, self.full, self.half
        rows = n * k
        to_q, keys = half.to_q.view(h, c, d).transpose(1, 2), self.keys.transpose(1, 2)
        to_out, fc1, fc2 = half.to_out.T, half.fc1.T, half.fc2.T
        places = [x.unbind(0) for x in (self.asking, self.thinking, self.heard, self.hidden, self.weights)]
        before, after = self.slots.unbind(0), self.between.unbind(0)
        before[0].view(n, k, d).copy_(slots)
        for t, (asking, thinking, heard, hidden, weights) in enumerate(zip(*places, strict=True)):
            normal, *first = torch.native_layer_norm(before[t], (d,), full.norm, full.norm_bias, how.epsilons[0])
            queries = torch.bmm(asking.copy_(normal).expand(h, rows, d), to_q).view(h * n, k, c)
            affinity = torch.bmm(queries, keys).view(h, n, k, inputs)
            share = torch.softmax(affinity, 2, dtype=slots.dtype).masked_fill_(self.pads, how.pad_share)
            torch.div(share, share.sum(-1, keepdim=True).add_(EPSILON), out=weights)
            taken = weights.to(queries.dtype).view(h * n, k, inputs)
            heard.view(rows, h, c).copy_(torch.bmm(taken, self.values).view(h, rows, c).transpose(0, 1))
            message, left = _drop(torch.addmm(half.to_out_bias, heard, to_out), how.dropouts[0])
            between = torch.add(before[t], message, out=after[t])
            normal, *second = torch.native_layer_norm(between, (d,), full.ffn_norm, full.ffn_norm_bias, how.epsilons[1])
            torch.addmm(half.fc1_bias, thinking.copy_(normal), fc1, out=hidden)
            active, inside = _drop(F.gelu(hidden), how.dropouts[1])
            more = torch.addmm(half.fc2_bias, active, fc2)
            out = torch.add(between, more, out=before[t + 1]) if t + 1 < how.count else between + more
            self.queries.append(queries)
            self.shares.append(share)
            self.taken.append(taken)
            self.active.append(active)
            self.statistics.append((*first, *second))
            self.left.append((left, inside))
        return out.view(n, k, d)

    def backward(self, gradient: Tensor) -> tuple[Tensor, ...]:
        """Of the slots after (n, k, d) to: slots before, keys, values, and each of the weights."""
        (n, k, d, h, inputs, c), how, full, half = self.sizes, self.how, self.full, self.half
        rows = n * k
        to_out, values = half.to_out.view(d, h, c).transpose(0, 1), self.values.transpose(1, 2)
        # The gradients of what the maps give and, where they are given LN, of that: of all iterations.
        of_asking, of_thinking, of_more = (torch.empty_like(x) for x in (self.slots, self.slots, self.asking))
        of_hidden, of_queries = torch.empty_like(self.hidden), torch.empty_like(self.heard)
        of_message: list[Tensor] = []
        of_heard: list[Tensor] = []
        of_affinity: list[Tensor] = []
        made = (of_asking, of_thinking, of_more, of_hidden, of_queries, self.slots, self.between, self.hidden)
        places = list(zip(*(x.unbind(0) for x in (*made, self.weights)), strict=True))
        slope = gradient.reshape(rows, d)
        for t in reversed(range(how.count)):
            asking, thinking, more, hidden, queries, before, between, was_hidden, weights = places[t]
            (mean, rstd, inner_mean, inner_rstd), (left, inside) = self.statistics[t], self.left[t]
            active = _undrop(torch.mm(more.copy_(slope), half.fc2), inside, how.dropouts[1])
            torch.ops.aten.gelu_backward(active, was_hidden, grad_input=hidden)
            thinking.copy_(torch.mm(hidden, half.fc1))
            slope = _through_norm(thinking, between, inner_mean, inner_rstd, full.ffn_norm).add_(slope)
            message = _undrop(slope.to(more.dtype), left, how.dropouts[0])
            heard = torch.bmm(message.expand(h, rows, d), to_out).view(h * n, k, c)
            weighed = torch.bmm(heard, values).view(h, n, k, inputs).to(slope.dtype)
            # Weights w = share / sum: share times its slope is w (slope - sum of slope w), as of a softmax.
            shared = torch._softmax_backward_data(weighed, weights, -1, slope.dtype)
            if how.pad_share:
                shared.masked_fill_(self.pads, 0)
            affinity = torch.addcmul(shared, self.shares[t], shared.sum(2, keepdim=True), value=-1)
            affinity = affinity.to(heard.dtype).view(h * n, k, inputs)
            queries.view(rows, h, c).copy_(torch.bmm(affinity, self.keys).view(h, rows, c).transpose(0, 1))
            asking.copy_(torch.mm(queries, half.to_q))
            slope = _through_norm(asking, before, mean, rstd, full.norm).add_(slope)
            of_message.insert(0, message)
            of_heard.insert(0, heard)
            of_affinity.insert(0, affinity)
        of_keys = torch.bmm(torch.cat(of_affinity, 1).transpose(1, 2), torch.cat(self.queries, 1)) / math.sqrt(c)
        of_values = torch.bmm(torch.cat(self.taken, 1).transpose(1, 2), torch.cat(of_heard, 1))
        messages = torch.cat(of_message).view(how.count, rows, d)
        return (
            slope.view(n, k, d),
            of_keys.view(h, n, inputs, c),
            of_values.view(h, n, inputs, c),
            *_of_norm(of_asking, self.slots, full.norm, how.epsilons[0]),
            _of_map(of_queries, self.asking, full.to_q),
            _of_map(messages, self.heard, full.to_out),
            _of_bias(messages, full.to_out_bias),
            *_of_norm(of_thinking, self.between, full.ffn_norm, how.epsilons[1]),
            _of_map(of_hidden, self.thinking, full.fc1),
            _of_bias(of_hidden, full.fc1_bias),
            _of_map(of_more, torch.cat(self.active), full.fc2),
            _of_bias(of_more, full.fc2_bias),
        )


def _in_type(full: SlotWeights, dtype: torch.dtype) -> SlotWeights:
    """Maps and their biases in the type of the products; what belongs to a layer norm is left out."""
    names = ("to_q", "to_out", "to_out_bias", "fc1", "fc1_bias", "fc2", "fc2_bias")
    given = [getattr(full, name) for name in names]
    if all(tensor.dtype == dtype for tensor in given):
        return full
    made = [torch.empty_like(tensor, dtype=dtype) for tensor in given]
    torch._foreach_copy_(made, given)  # one call for all
    return full._replace(**dict(zip(names, made, strict=True)))


def _drop(x: Tensor, share: float) -> tuple[Tensor, Tensor | None]:
    """Dropout, as nn.Dropout draws it, and what it left."""
    return torch.native_dropout(x, share, True) if share else (x, None)


def _undrop(gradient: Tensor, left: Tensor | None, share: float) -> Tensor:
    if left is None:
        return gradient
    scaled: Tensor = torch.ops.aten.native_dropout_backward(gradient, left, 1 / (1 - share))
    return scaled


def _through_norm(gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a layer norm's input."""
    wanted = [True, False, False]
    found: Tensor = torch.ops.aten.native_layer_norm_backward(
        gradient, x, weight.shape, mean, rstd, weight, None, wanted
    )[0]
    return found


def _of_norm(gradient: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The gradients of a layer norm's weight and bias, of all iterations together."""
    x = x.flatten(0, 1)
    _, mean, rstd = torch.native_layer_norm(x, weight.shape, None, None, epsilon)
    _, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
        gradient.flatten(0, 1), x, weight.shape, mean, rstd, weight, weight, [False, True, True]
    )
    return of_weight, of_bias


def _of_map(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a matrix, of all iterations together."""
    return torch.mm(gradient.flatten(0, 1).T, x.reshape(-1, x.shape[-1])).to(weight.dtype)


def _of_bias(gradient: Tensor, bias: Tensor) -> Tensor:
    return gradient.sum((0, 1), dtype=bias.dtype)
