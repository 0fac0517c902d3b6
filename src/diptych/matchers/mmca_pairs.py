"""The cross part of MMCA for all pairs without gradient: the same sums as in mmca.py, in fewer passes over memory.

Items of a side come before its pairs, (k, n, m, d): a word's neighbour is then a whole block of rows away, so that
convolutions are plain products, and sums and maxima over items run along contiguous pairs.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diptych.encoders.convolutions import TextCNN
from diptych.encoders.encoded import l2
from diptych.encoders.transformer_unit import TransformerUnit
from diptych.matchers.kept import all_real

if TYPE_CHECKING:
    from diptych.matchers.mmca import MMCAKept

PAD = -1e30  # what is added to the affinity with padding: no weight is left after the softmax


def cross_scores(unit: TransformerUnit, cnn: TextCNN, images: "MMCAKept", texts: "MMCAKept") -> Tensor:
    """i1.c1 of all pairs (n, m), in float32; nothing of it can be differentiated."""
    regions = _after_unit(unit, images, texts)
    real = images.mask.T[:, :, None, None]
    if not all_real(images.mask):
        regions = regions.masked_fill_(~real, 0)
    i1 = l2(regions.sum(0))  # a mean, less its divisor
    del regions
    words = _after_unit(unit, texts, images)
    k, m, n, d = words.shape
    pads = None if all_real(texts.mask) else ~texts.mask.T.unsqueeze(-1).expand(k, m, n).reshape(k, m * n)
    c1 = cnn.in_place(words.view(k, m * n, d), pads).view(m, n, -1)
    return (i1 * c1.transpose(0, 1)).sum(-1)


def _after_unit(unit: TransformerUnit, rows: "MMCAKept", others: "MMCAKept") -> Tensor:
    """One side's items after the cross unit: (k, rows, others, d)."""
    x = rows.vectors.transpose(0, 1).unsqueeze(2)
    return unit.finish_in_place(x, _attend(unit, rows, others).flatten(-2))


def _attend(unit: TransformerUnit, rows: "MMCAKept", others: "MMCAKept") -> Tensor:
    """Attention of each row over its own side, which is kept, and the other's: (k, rows, others, heads, d / heads).

    The own side is one more key, whose affinity is the kept log of the sum of exponentials, and pads are lowered by one
    more dimension: both are part of the product, and one softmax makes all shares.
    """
    (n, k), (m, o), heads = rows.mask.shape, others.mask.shape, unit.heads
    query, key, value = unit.split(rows.query), unit.split(others.key), unit.split(others.value)
    width = query.shape[-1]
    one = torch.ones_like(query[..., :1])
    queries = torch.cat((query, unit.split(rows.own), one), -1).permute(2, 3, 1, 0).reshape(heads, width + 2, k * n)
    keys = key.new_zeros(heads, m, o + 1, width + 2)
    keys[:, :, 0, width] = 1
    keys[:, :, 1:, :width] = key.permute(2, 0, 1, 3)
    keys[:, :, 1:, width + 1] = (~others.mask).to(key.dtype) * PAD
    values = value.new_zeros(heads, m, o + 1, width)
    values[:, :, 1:] = value.permute(2, 0, 1, 3)
    shares = torch.bmm(keys.view(heads, m * (o + 1), width + 2), queries).view(heads, m, o + 1, k * n).softmax(2)
    heard = torch.bmm(shares.view(heads * m, o + 1, k * n).transpose(1, 2), values.view(heads * m, o + 1, width))
    kept = shares[:, :, 0].reshape(heads, m, k, n).permute(2, 3, 1, 0).unsqueeze(-1)
    attended = heard.new_empty(k, n, m, heads, width)
    torch.mul(unit.split(rows.attended).transpose(0, 1).unsqueeze(2), kept, out=attended)
    return attended.add_(heard.view(heads, m, k, n, width).permute(2, 3, 1, 0, 4))
