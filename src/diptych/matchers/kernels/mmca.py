# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The cross part of MMCA for all pairs on a GPU, without gradient.

Four kernels. Attention, once each way, writes what each region and word of a pair gathers; the rest of the
Transformer unit takes a tile of those rows through all its Linears and norms and writes it back in place; the
convolutions keep only their largest over words; and the last adds the regions up and compares. Rows of both sides lie
pair by pair, pictures first: (n * m * items, d) in half precision.
"""

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from diptych.common.fused import half_product
from diptych.encoders.convolutions import WIDTHS, TextCNN
from diptych.encoders.transformer_unit import TransformerUnit
from diptych.matchers.kernels.products import described, power_of_two, precision_of

if TYPE_CHECKING:
    from diptych.matchers.mmca import MMCAKept

ATTEND_TILE = (64, 32, 4, 3)  # rows, items of several senders that they meet at once; warps, stages
FINISH_TILE = (64, 64, 32, 4, 2)  # rows, inputs of the first map at a time, hidden units at a time; warps, stages
CONVOLVE_TILE = (128, 64, 8, 4)  # rows, inputs at a time; warps, stages
COMPARED = 1024  # numbers that a warp adds up at once
LOG2E = tl.constexpr(math.log2(math.e))
LOWEST = tl.constexpr(-1e30)
SMALLEST = 16  # the least side of a tile of a product
# Sizes that differ from call to call must not each compile a kernel of their own.
SIZES = ["m", "pairs", "regions", "words", "count", "each", "items", "senders", "receiver_step", "sender_step"]


@triton.jit(do_not_specialize=SIZES)
def _attend_kernel(
    query, attended, own, key, value, mask, out, count, items, senders, each, receiver_step, sender_step,
    dim: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, C: tl.constexpr, K: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """ROWS items of receivers and J senders, head by head: weights on the own side, which is kept, and on the other.

    query, attended: (receivers, items, dim), own: (receivers, items, heads), `count` items in all
    key, value: (senders, each, dim), mask: (senders, each); out: (pairs, items, dim), by steps of a pair
    A row meets the items of all J senders in one product; and since a message comes from one sender alone, what its
    weights are multiplied by has the J senders' values down its diagonal.
    """
    groups = tl.cdiv(senders, J)
    first = tl.program_id(0) % groups * J
    row, c, g, j = (
        tl.program_id(0) // groups * ROWS + tl.arange(0, ROWS), tl.arange(0, C), tl.arange(0, J * K), tl.arange(0, J)
    )  # fmt: skip
    there, within = row < count, c < WIDTH
    sent = (g % K < each) & (first + g // K < senders)
    item = first * each + g // K * each + g % K
    real = tl.load(mask + item, mask=sent, other=0) != 0
    rows_at, rows_there = (row * dim)[:, None] + c[None, :], there[:, None] & within[None, :]
    keys_at, keys_there = (item * dim)[:, None] + c[None, :], sent[:, None] & within[None, :]
    column = tl.arange(0, J * C)
    values_at = (item * dim)[:, None] + (column % C)[None, :]
    diagonal = sent[:, None] & (column % C < WIDTH)[None, :] & ((g // K)[:, None] == (column // C)[None, :])
    out += (first * sender_step).to(tl.int64) * items * dim
    place = (row // items * receiver_step).to(tl.int64) * items * dim + row % items * dim
    step = sender_step * items * dim
    out_there = there[:, None, None] & (first + j < senders)[None, :, None] & within[None, None, :]
    for h in range(HEADS):
        at = h * WIDTH
        q = tl.load(query + rows_at + at, mask=rows_there, other=0.0)
        k = tl.load(key + keys_at + at, mask=keys_there, other=0.0)
        a = tl.dot(q, tl.trans(k), input_precision=PRECISION) * LOG2E
        a = tl.reshape(tl.where(real[None, :], a, LOWEST), (ROWS, J, K))
        kept = tl.load(own + row * HEADS + h, mask=there, other=0.0) * LOG2E
        peak = tl.maximum(tl.max(a, 2), kept[:, None])
        e = tl.exp2(a - peak[:, :, None])
        share = tl.exp2(kept[:, None] - peak)
        scale = 1 / (tl.sum(e, 2) + share)
        e = tl.reshape(e * scale[:, :, None], (ROWS, J * K))
        v = tl.load(value + values_at + at, mask=diagonal, other=0.0)
        heard = tl.reshape(tl.dot(e.to(v.dtype), v, input_precision=PRECISION), (ROWS, J, C))
        mine = tl.load(attended + rows_at + at, mask=rows_there, other=0.0).to(tl.float32)
        heard += (share * scale)[:, :, None] * mine[:, None, :]
        to = place[:, None, None] + (j * step)[None, :, None] + (at + c)[None, None, :]
        tl.store(out + to, heard.to(out.dtype.element_ty), mask=out_there)


@triton.jit
def _norm(s, scale, shift, d, epsilon, dim: tl.constexpr, D: tl.constexpr):
    """Layer norm of rows (rows, D), of which dim columns count."""
    if dim < D:
        s = tl.where((d < dim)[None, :], s, 0.0)
    s -= (tl.sum(s, 1) / dim)[:, None]
    if dim < D:
        s = tl.where((d < dim)[None, :], s, 0.0)
    s *= tl.rsqrt(tl.sum(s * s, 1) / dim + epsilon)[:, None]
    g = tl.load(scale + d, mask=d < dim, other=0.0).to(tl.float32)
    return s * g[None, :] + tl.load(shift + d, mask=d < dim, other=0.0).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=SIZES)
def _finish_kernel(
    rows, back, x, mask, output, fc1, fc2, bias1, bias2, scale1, shift1, scale2, shift2,
    count, each, items, epsilon1, epsilon2,
    dim: tl.constexpr, RECEIVERS_FIRST: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, STEP: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """LN(y + FFN(y)) with y = LN(x + output map of what was gathered), of ROWS of the rows (count, dim), in place.

    rows, back: the rows, as they are read and as they are written, 0 at pads
    x, mask: (receivers, items, dim) and (receivers, items), of which a receiver has `each` rows one after the other, or
    else its items come back every `each`
    """
    first = tl.program_id(0) * ROWS
    row, d = first + tl.arange(0, ROWS), tl.arange(0, D)
    within = d < dim
    own = tl.minimum(row, count - 1)
    if RECEIVERS_FIRST:
        own = own // each * items + own % items
    else:
        own = own % each
    real = tl.load(mask + own) != 0
    s = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, dim, STEP):
        s = tl.dot(rows.load([first, start]), output.load([0, start]).T, s, input_precision=PRECISION)
    s += tl.load(x + (own * dim)[:, None] + d[None, :], mask=within[None, :], other=0.0).to(tl.float32)
    y = _norm(s, scale1, shift1, d, epsilon1, dim, D)
    half = y.to(rows.dtype)
    y += tl.load(bias2 + d, mask=within, other=0.0).to(tl.float32)[None, :]
    for start in range(0, dim, HIDDEN):
        f = start + tl.arange(0, HIDDEN)
        t = tl.dot(half, fc1.load([start, 0]).T, input_precision=PRECISION)
        t = tl.maximum(t + tl.load(bias1 + f, mask=f < dim, other=0.0).to(tl.float32)[None, :], 0.0)
        y = tl.dot(t.to(half.dtype), fc2.load([0, start]).T, y, input_precision=PRECISION)
    y = _norm(y, scale2, shift2, d, epsilon2, dim, D)
    back.store([first, 0], tl.where(real[:, None], y, 0.0).to(back.dtype))


@triton.jit(do_not_specialize=SIZES)
def _convolve_kernel(
    rows, text_mask, weights, bias, out, pairs, m, words,
    dim: tl.constexpr, filters: tl.constexpr, LENGTH: tl.constexpr, PLACE: tl.constexpr, PRECISION: tl.constexpr,
    P: tl.constexpr, W: tl.constexpr, F: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The largest over words of one width's convolution, then bias and ReLU: P pairs, F filters.

    rows: (pairs, words, dim), 0 at pads; weights: (LENGTH * filters, dim); out: (pairs, 3, filters), of which `PLACE`
    is written. What is read past the last word of a sentence is 0.
    """
    blocks = tl.cdiv(filters, F)
    column = tl.program_id(0) % blocks * F
    first = tl.program_id(0) // blocks * P
    f, g = column + tl.arange(0, F), tl.arange(0, P * W)
    pair, w = first + g // W, g % W
    real = tl.load(text_mask + pair % m * words + w, mask=w < words, other=0) != 0
    found = tl.zeros((P * W, F), tl.float32)
    across: tl.constexpr = (dim + STEP - 1) // STEP
    for part in range(LENGTH * across):
        further, start = part // across, part % across * STEP
        a = tl.reshape(rows.load([first, further, start]), (P * W, STEP))
        b = weights.load([further * filters + column, start])
        found = tl.dot(a, b.T, found, input_precision=PRECISION)
    found = tl.reshape(tl.where(real[:, None], found, LOWEST), (P, W, F))
    largest = tl.max(found, 1) + tl.load(bias + f, mask=f < filters, other=0.0).to(tl.float32)[None, :]
    of = first + tl.arange(0, P)
    place = out + (of.to(tl.int64) * 3 + PLACE)[:, None] * filters + f[None, :]
    tl.store(
        place, tl.maximum(largest, 0.0).to(out.dtype.element_ty), mask=(of < pairs)[:, None] & (f < filters)[None, :]
    )


@triton.jit(do_not_specialize=SIZES)
def _compare_kernel(
    rows, c1, bias, out, regions,
    dim: tl.constexpr, MAPPED: tl.constexpr, R: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """i1.c1 of one pair; i1 is the sum of its regions (pairs, regions, dim), 0 at pads, over its length.

    c1: (pairs, dim); with MAPPED what a map gave, without its bias, which is then l2-normalised
    """
    pair = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    sums = tl.zeros((K, D), tl.float32)
    for start in range(0, R, K):
        r = start + tl.arange(0, K)
        at = (pair * regions + r)[:, None] * dim + d[None, :]
        sums += tl.load(rows + at, mask=(r < regions)[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32)
    total = tl.sum(sums, 0)
    c = tl.load(c1 + pair * dim + d, mask=d < dim, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(total * total, 0)), 1e-12)
    if MAPPED:
        c += tl.load(bias + d, mask=d < dim, other=0.0).to(tl.float32)
        length *= tl.maximum(tl.sqrt(tl.sum(c * c, 0)), 1e-12)
    tl.store(out + pair, tl.sum(total * c, 0) / length)


def cross_scores(
    unit: TransformerUnit, cnn: TextCNN, images: "MMCAKept", texts: "MMCAKept", dtype: torch.dtype
) -> Tensor:
    """i1.c1 of all pairs (n, m), in float32; products are of numbers of `dtype`, their sums float32.

    Both sides must be contiguous.
    """
    regions = attend(unit.heads, images, texts, dtype, images_first=True)
    words = attend(unit.heads, texts, images, dtype, images_first=False)
    finish(unit, regions, images.vectors.to(dtype), images.mask, receivers_first=True)
    finish(unit, words, texts.vectors.to(dtype), texts.mask, receivers_first=False)
    c1 = half_product(convolve(cnn, words, texts.mask), cnn.fc.weight.to(dtype))
    del words
    if cnn.norm is not None:
        c1 = cnn.norm(c1.add_(cnn.fc.bias)).contiguous()
    n, m, k, d = regions.shape
    out = torch.empty(n, m, dtype=torch.float32, device=regions.device)
    D = max(SMALLEST, power_of_two(d))
    _compare_kernel[(n * m,)](
        regions,
        c1,
        cnn.fc.bias,
        out,
        k,
        d,
        MAPPED=cnn.norm is None,
        R=power_of_two(k),
        D=D,
        K=min(power_of_two(k), COMPARED // D),
        num_warps=1,
    )
    return out


def attend(heads: int, rows: "MMCAKept", others: "MMCAKept", dtype: torch.dtype, images_first: bool) -> Tensor:
    """What each item of a side gathers from its own side and the other, of all pairs: (images, texts, items, d)."""
    (n, items, d), (m, each) = rows.vectors.shape, others.mask.shape
    out = torch.empty(*((n, m) if images_first else (m, n)), items, d, dtype=dtype, device=rows.device)
    K, (ROWS, together, warps, stages) = max(SMALLEST, power_of_two(each)), ATTEND_TILE
    J = max(1, min(power_of_two(m), together // K))
    _attend_kernel[(triton.cdiv(n * items, ROWS) * triton.cdiv(m, J),)](
        *(x.to(dtype) for x in (rows.query, rows.attended)), rows.own.float(),
        *(x.to(dtype) for x in (others.key, others.value)), others.mask,
        out, n * items, items, m, each, *((m, 1) if images_first else (1, n)),
        dim=d, HEADS=heads, WIDTH=d // heads, PRECISION=precision_of(dtype),
        ROWS=ROWS, C=max(SMALLEST, power_of_two(d // heads)), K=K, J=J, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def finish(unit: TransformerUnit, rows: Tensor, x: Tensor, mask: Tensor, receivers_first: bool) -> None:
    """What follows the heads in the unit, of rows (n, m, items, d), in place, and 0 at pads.

    x, mask: (receivers, items, d) and (receivers, items), which came into the unit
    """
    n, m, items, d = rows.shape
    ROWS, step, hidden, warps, stages = FINISH_TILE
    D = max(SMALLEST, power_of_two(d))
    step, hidden, count = min(step, D), min(hidden, D), n * m * items
    flat = rows.view(count, d)
    output, fc1, fc2 = (linear.weight.to(rows.dtype) for linear in (unit.output, unit.fc1, unit.fc2))
    norms = [p for norm in (unit.norm1, unit.norm2) for p in (norm.weight, norm.bias)]
    _finish_kernel[(triton.cdiv(count, ROWS),)](
        described(flat, ROWS, step), described(flat, ROWS, D), x, mask,
        described(output, D, step), described(fc1, hidden, D), described(fc2, D, hidden), unit.fc1.bias, unit.fc2.bias,
        *norms, count, m * items, items, unit.norm1.eps, unit.norm2.eps,
        dim=d, RECEIVERS_FIRST=receivers_first, PRECISION=precision_of(rows.dtype),
        ROWS=ROWS, D=D, STEP=step, HIDDEN=hidden, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def convolve(cnn: TextCNN, rows: Tensor, mask: Tensor) -> Tensor:
    """The convolutions of words (n, m, words, d) after their largest and ReLU: (n * m, 3 filters)."""
    n, m, words, d = rows.shape
    convolutions: list[nn.Conv1d] = list(cnn.convolutions)  # type: ignore[arg-type]
    filters = convolutions[0].out_channels
    out = rows.new_empty(n * m, len(WIDTHS) * filters)
    W = max(SMALLEST, power_of_two(words))
    tile, step, warps, stages = CONVOLVE_TILE
    P, F, step = (
        max(1, tile // W),
        min(256, max(SMALLEST, power_of_two(filters))),
        min(step, max(SMALLEST, power_of_two(d))),
    )
    words_of = described(rows.view(n * m, words, d), P, W, step)
    for place, convolution in enumerate(convolutions):
        weights = convolution.weight.permute(2, 0, 1).to(rows.dtype).contiguous()
        _convolve_kernel[(triton.cdiv(n * m, P) * triton.cdiv(filters, F),)](
            words_of, mask, described(weights.view(-1, d), F, step), convolution.bias, out, n * m, m, words,
            dim=d, filters=filters, LENGTH=len(weights), PLACE=place, PRECISION=precision_of(rows.dtype),
            P=P, W=W, F=F, STEP=step, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out
