# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The cross part of MMCA for all pairs on a GPU, without gradient.

Four kernels. Attention both ways writes what each region and word of a pair gathers; the rest of the Transformer unit
takes a tile of those rows through all its Linears and norms and writes it back in place; the convolutions keep only
their largest over words; and the last adds the regions up and compares. Rows of both sides lie pair by pair, pictures
first: (n * m * items, d) in half precision.
"""

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from diptych.encoders.convolutions import WIDTHS, TextCNN
from diptych.encoders.transformer_unit import TransformerUnit
from diptych.matchers.kernels.products import described, half_product, power_of_two, precision_of

if TYPE_CHECKING:
    from diptych.matchers.mmca import MMCAKept

TOGETHER = 64  # words of several sentences that meet a picture at once
FINISH_TILE = (128, 64, 64, 8, 3)  # rows, inputs of the first map at a time, hidden units at a time; warps, stages
CONVOLVE_TILE = (128, 64, 8, 3)  # rows, inputs at a time; warps, stages
LOG2E = tl.constexpr(math.log2(math.e))
LOWEST = tl.constexpr(-1e30)
SMALLEST = 16  # the least side of a tile of a product
# Sizes that differ from call to call must not each compile a kernel of their own.
SIZES = ["n", "m", "pairs", "regions", "words", "count", "each", "items"]


@triton.jit
def _shares(affinity, own, AXIS: tl.constexpr):
    """Softmax over the last axis and one number more, `own`: the weights, and the share of `own`."""
    peak = tl.maximum(tl.max(affinity, AXIS), own)
    weights = tl.exp2(affinity - tl.expand_dims(peak, AXIS))
    kept = tl.exp2(own - peak)
    scale = 1 / (tl.sum(weights, AXIS) + kept)
    return weights * tl.expand_dims(scale, AXIS), kept * scale


@triton.jit(do_not_specialize=SIZES)
def _attend_kernel(
    image_query, image_key, image_value, image_attended, image_own, image_mask,
    text_query, text_key, text_value, text_attended, text_own, text_mask,
    to_images, to_texts, n, m, regions, words,
    dim: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr, W: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """One picture and J sentences, head by head: each row's weights on its own side, which is kept, and the other.

    to_images: (n, m, regions, d), to_texts: (n, m, words, d)
    A region meets the words of all J sentences in one product; and since a message comes from one sentence alone, what
    its weights are multiplied by has the J sentences' values down its diagonal.
    """
    groups = tl.cdiv(m, J)
    i, first = tl.program_id(0) // groups, tl.program_id(0) % groups * J
    r, c, g = tl.arange(0, R), tl.arange(0, C), tl.arange(0, J * W)
    j, w = first + g // W, g % W
    region, word = i * regions + r, j * words + w
    seen, told, within = r < regions, (w < words) & (j < m), c < WIDTH
    real_regions = tl.load(image_mask + region, mask=seen, other=0) != 0
    real_words = tl.load(text_mask + word, mask=told, other=0) != 0
    regions_at = region.to(tl.int64)[:, None] * dim + c[None, :]
    words_at = word.to(tl.int64)[:, None] * dim + c[None, :]
    region_there, word_there = seen[:, None] & within[None, :], told[:, None] & within[None, :]
    # The values of sentence j down the diagonal: columns are (sentence, c).
    column = tl.arange(0, J * C)
    diagonal = (g // W)[:, None] == (column // C)[None, :]
    diagonal = diagonal & told[:, None] & (column % C < WIDTH)[None, :]
    diagonal_at = word.to(tl.int64)[:, None] * dim + (column % C)[None, :]
    sentence = first + tl.arange(0, J)
    pair = (i.to(tl.int64) * m + sentence)[None, :, None]
    out_at = (pair * regions + r[:, None, None]) * dim + c[None, None, :]
    out_there = seen[:, None, None] & (sentence < m)[None, :, None] & within[None, None, :]
    told_at = ((i.to(tl.int64) * m + j) * words + w)[:, None] * dim + c[None, :]
    for h in range(HEADS):
        at = h * WIDTH
        query = tl.load(image_query + regions_at + at, mask=region_there, other=0.0)
        key = tl.load(text_key + words_at + at, mask=word_there, other=0.0)
        a = tl.dot(query, tl.trans(key), input_precision=PRECISION) * LOG2E
        a = tl.reshape(tl.where(real_words[None, :], a, LOWEST), (R, J, W))
        own = tl.load(image_own + region * HEADS + h, mask=seen, other=0.0) * LOG2E
        weights, share = _shares(a, tl.broadcast_to(own[:, None], (R, J)), 2)
        value = tl.load(text_value + diagonal_at + at, mask=diagonal, other=0.0)
        heard = tl.dot(tl.reshape(weights, (R, J * W)).to(value.dtype), value, input_precision=PRECISION)
        kept = tl.load(image_attended + regions_at + at, mask=region_there, other=0.0).to(tl.float32)
        heard = tl.reshape(heard, (R, J, C)) + share[:, :, None] * kept[:, None, :]
        tl.store(to_images + out_at + at, heard.to(to_images.dtype.element_ty), mask=out_there)

        query = tl.load(text_query + words_at + at, mask=word_there, other=0.0)
        key = tl.load(image_key + regions_at + at, mask=region_there, other=0.0)
        b = tl.dot(query, tl.trans(key), input_precision=PRECISION) * LOG2E
        b = tl.where(real_regions[None, :], b, LOWEST)
        own = tl.load(text_own + word * HEADS + h, mask=told, other=0.0) * LOG2E
        weights, share = _shares(b, own, 1)
        value = tl.load(image_value + regions_at + at, mask=region_there, other=0.0)
        heard = tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        kept = tl.load(text_attended + words_at + at, mask=word_there, other=0.0).to(tl.float32)
        heard += share[:, None] * kept
        tl.store(to_texts + told_at + at, heard.to(to_texts.dtype.element_ty), mask=word_there)


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
def _compare_kernel(rows, c1, out, regions, dim: tl.constexpr, R: tl.constexpr, D: tl.constexpr, K: tl.constexpr):
    """i1.c1 of one pair; i1 is the sum of its regions (pairs, regions, dim), 0 at pads, over its length."""
    pair = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    for start in range(0, R, K):
        r = start + tl.arange(0, K)
        at = (pair * regions + r)[:, None] * dim + d[None, :]
        total += tl.sum(
            tl.load(rows + at, mask=(r < regions)[:, None] & (d < dim)[None, :], other=0.0).to(tl.float32), 0
        )
    c = tl.load(c1 + pair * dim + d, mask=d < dim, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(total * total, 0)), 1e-12)
    tl.store(out + pair, tl.sum(total * c, 0) / length)


def cross_scores(
    unit: TransformerUnit, cnn: TextCNN, images: "MMCAKept", texts: "MMCAKept", dtype: torch.dtype
) -> Tensor:
    """i1.c1 of all pairs (n, m), in float32; products are of numbers of `dtype`, their sums float32."""
    regions, words = attend(unit.heads, images, texts, dtype)
    finish(unit, regions, images.vectors.to(dtype), images.mask, receivers_first=True)
    finish(unit, words, texts.vectors.to(dtype), texts.mask, receivers_first=False)
    pooled = convolve(cnn, words, texts.mask)
    c1 = cnn.normalise(half_product(pooled, cnn.fc.weight.to(dtype)).add_(cnn.fc.bias.float())).float().contiguous()
    del words
    n, m, k, d = regions.shape
    out = torch.empty(n, m, dtype=torch.float32, device=regions.device)
    D = max(SMALLEST, power_of_two(d))
    _compare_kernel[(n * m,)](
        regions, c1, out, k, d, R=power_of_two(k), D=D, K=min(power_of_two(k), 4096 // D), num_warps=4
    )
    return out


def attend(heads: int, images: "MMCAKept", texts: "MMCAKept", dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What each region and each word of all pairs gathers: (n, m, regions, d) and (n, m, words, d)."""
    (n, regions, d), (m, words) = images.vectors.shape, texts.mask.shape
    to_images = torch.empty(n, m, regions, d, dtype=dtype, device=images.device)
    to_texts = torch.empty(n, m, words, d, dtype=dtype, device=images.device)
    R, W = max(SMALLEST, power_of_two(regions)), max(SMALLEST, power_of_two(words))
    J = max(1, min(power_of_two(m), TOGETHER // W))
    given = []
    for side in (images, texts):
        given += [x.to(dtype).contiguous() for x in (side.query, side.key, side.value, side.attended)]
        given += [side.own.float().contiguous(), side.mask.contiguous()]
    _attend_kernel[(n * triton.cdiv(m, J),)](
        *given, to_images, to_texts, n, m, regions, words,
        dim=d, HEADS=heads, WIDTH=d // heads, PRECISION=precision_of(dtype),
        C=max(SMALLEST, power_of_two(d // heads)), R=R, W=W, J=J, num_warps=4, num_stages=2,
    )  # fmt: skip
    return to_images, to_texts


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
        described(flat, ROWS, step), described(flat, ROWS, D), x.contiguous(), mask.contiguous(),
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
