"""Set prediction of one item as written: one slot, one head, one input at a time."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from diptych.encoders.slots import SetPrediction


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    mean = x.mean()
    return (x - mean) / ((x - mean).pow(2).mean() + norm.eps).sqrt() * norm.weight + norm.bias


def position(p: int, n: float, w: int) -> Tensor:
    """Position p of n, from 1."""
    code = []
    for i in range(w):
        angle = 2 * math.pi * p / n / 10000 ** (2 * (i // 2) / w)
        code.append(math.sin(angle) if i % 2 == 0 else math.cos(angle))
    return torch.tensor(code)


def gru_cell(cell: nn.GRUCell, x: Tensor, h: Tensor) -> Tensor:
    d = len(h)
    i = cell.weight_ih @ x + cell.bias_ih
    j = cell.weight_hh @ h + cell.bias_hh
    reset = torch.sigmoid(i[:d] + j[:d])
    update = torch.sigmoid(i[d : 2 * d] + j[d : 2 * d])
    new = torch.tanh(i[2 * d :] + reset * j[2 * d :])
    return (1 - update) * new + update * h


def initial_slots(module: SetPrediction) -> list[Tensor]:
    if not module.random:
        return [module.slots[k] for k in range(module.count)]
    noise = module.get_buffer("slots_noise")
    return [module.slots_mean + module.slots_log_std.exp() * noise[k] for k in range(module.count)]


def slow_set(
    module: SetPrediction, inputs: Sequence[Tensor], whole: Tensor | None, pads: int = 0
) -> tuple[list[Tensor], list[Tensor], list[list[list[list[Tensor]]]]]:
    """Elements, slots and weights[iteration][head][slot][input].

    `inputs` are the real ones followed by `pads` that are none. With the module's `legacy_mask`, as published: a pad's
    affinity with every slot is one and the same lowest number before the softmax over slots, and its place counts in n.
    """
    attention, n = module.attention, len(inputs)
    heads = attention.heads
    size = attention.to_q.out_features // heads
    real = n - pads
    counted = range(n) if module.legacy_mask else range(real)
    normal = [layer_norm(x, attention.norm_inputs) for x in inputs]
    keys = []
    for p, x in enumerate(normal):
        length = n if module.legacy_mask else real
        keys.append(attention.to_k.weight @ (x + position(p + 1, length, len(x)) if module.position else x))
    values = [attention.to_v.weight @ x for x in normal]
    slots = initial_slots(module)
    all_weights = []
    for _ in range(module.iterations):
        queries = [attention.to_q.weight @ layer_norm(s, attention.norm) for s in slots]
        gathered: list[list[Tensor]] = [[] for _ in slots]
        weights_of_heads = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            share: list[list[Tensor]] = [[] for _ in slots]
            for j in counted:
                a = [(q[part] * keys[j][part]).sum() / math.sqrt(size) for q in queries]
                if j >= real:
                    a = [torch.tensor(torch.finfo(torch.float32).min) for _ in slots]
                top = max(float(x.detach()) for x in a)
                e = [(x - top).exp() for x in a]
                for k in range(len(slots)):
                    share[k].append(e[k] / torch.stack(e).sum())
            weights = [[x / torch.stack(row).sum() for x in row] for row in share]
            for k, row in enumerate(weights):
                gathered[k].append(torch.stack([row[j] * values[j][part] for j in counted]).sum(0))
            weights_of_heads.append(weights)
        all_weights.append(weights_of_heads)
        for k in range(len(slots)):
            message = attention.to_out.weight @ torch.cat(gathered[k]) + attention.to_out.bias
            if module.gru is None:
                slots[k] = slots[k] + message
            else:
                slots[k] = gru_cell(module.gru, message, slots[k])
            ffn = module.feed_forward
            hidden = ffn.fc1.weight @ layer_norm(slots[k], ffn.norm) + ffn.fc1.bias
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
            slots[k] = slots[k] + ffn.fc2.weight @ hidden + ffn.fc2.bias
    slots = [layer_norm(s, module.slots_norm) for s in slots]
    elements = slots
    if module.global_norm is not None:
        assert whole is not None
        elements = [layer_norm(whole, module.global_norm) + s for s in slots]
    return [e / e.pow(2).sum().sqrt() for e in elements], slots, all_weights
