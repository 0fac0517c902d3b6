# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""CAMP's message passing of all pairs on a GPU, without gradient.

Four steps, of which the third is a matrix product of the field's own library: attention of both directions from one
matrix of affinities; the gated join of every receiver with its message; the fusion's Linear; and the weighted sum of
what came out. Between them lie tensors (senders, receivers' rows, d) in half precision, each written and read once.
Where the Linear moves out of the pair (one gate a region, or none), the second step writes what it would give.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from diptych.common.fused import half_product, own_memory
from diptych.encoders.pooling import mean_pool
from diptych.matchers.camp_parts import CAMPKept
from diptych.matchers.kernels.products import power_of_two, precision_of

Join = Literal["add", "concat", "product", "linear"]
LOWEST = tl.constexpr(-1e38)
JOIN_TILE = (64, 64, 8, 4, 3)  # rows, dimensions, senders of a program; warps, stages
HEAR_TILE = (16, 8, 8)  # rows at a time, senders of a program; warps
HEARD = 1 << 16  # numbers of a sender that a program of `_hear_kernel` holds at most
ASIDE = 20 << 10  # bytes of a multiprocessor's own memory that it takes besides
AGGREGATE_TILE = (8192, 4)  # numbers that a program holds at once; warps
# Sizes that differ from call to call must not each compile a kernel of their own.
SIZES = ["n", "m", "regions", "words", "rows", "senders", "items", "receivers", "receiver_step", "sender_step"]


@dataclass(frozen=True)
class Attention:
    """How much each row hears of each item of every other side, equations 1, 2 and 4, in half precision.

    to_images: (n * regions, m, words), over words; to_texts: (m * words, n, regions), over regions; both last axes are
    padded with 0 to a power of two, so that rows can be read as a whole
    image_gates: (n * regions, m), text_gates: (m * words, n): float32, one gate a row; None where there are none
    """

    to_images: Tensor
    to_texts: Tensor
    image_gates: Tensor | None
    text_gates: Tensor | None


@dataclass(frozen=True)
class Receiver:
    """The weights of one side, as CAMP holds them.

    weight, bias: of the fusion's Linear; scores: (d,), w of equation 10 over sqrt(d), or None for a mean
    """

    weight: Tensor
    bias: Tensor | None
    scores: Tensor | None
    residual: bool


@triton.jit(do_not_specialize=SIZES)
def _attend_kernel(
    affinities, dots, image_mask, text_mask, to_images, to_texts, image_gates, text_gates,
    n, m, regions, words, scale,
    GATED: tl.constexpr, R: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """One picture and G sentences: softmax both ways, and the gates sigmoid(x . message)."""
    groups = tl.cdiv(m, G)
    i = tl.program_id(0) // groups
    j = tl.program_id(0) % groups * G + tl.arange(0, G)
    r, w = tl.arange(0, R), tl.arange(0, W)
    there = (j < m)[:, None, None] & (r < regions)[None, :, None] & (w < words)[None, None, :]
    row = (i * regions + r).to(tl.int64)
    column = (j[:, None] * words + w[None, :]).to(tl.int64)
    place = row[None, :, None] * (m * words).to(tl.int64) + column[:, None, :]
    a = tl.load(affinities + place, mask=there, other=0.0) * scale
    real_words = tl.load(text_mask + column, mask=(j < m)[:, None] & (w < words)[None, :], other=0) != 0
    real_regions = tl.load(image_mask + row, mask=r < regions, other=0) != 0
    over_words = tl.where(real_words[:, None, :], a, LOWEST)
    e = tl.exp(over_words - tl.max(over_words, 2)[:, :, None])
    heard = e / tl.sum(e, 2)[:, :, None]
    over_regions = tl.where(real_regions[None, :, None], a, LOWEST)
    f = tl.exp(over_regions - tl.max(over_regions, 1)[:, None, :])
    told = f / tl.sum(f, 1)[:, None, :]
    # Past the last word or region the weight is 0, in rows of W and R.
    heard, told = tl.where((w < words)[None, None, :], heard, 0.0), tl.where((r < regions)[None, :, None], told, 0.0)
    seen, said = (j < m)[:, None] & (r < regions)[None, :], (j < m)[:, None] & (w < words)[None, :]
    at = (row[None, :] * m + j[:, None])[:, :, None] * W + w[None, None, :]
    tl.store(to_images + at, heard.to(to_images.dtype.element_ty), mask=seen[:, :, None])
    at = (column * n + i)[:, None, :] * R + r[None, :, None]
    tl.store(to_texts + at, told.to(to_texts.dtype.element_ty), mask=said[:, None, :])
    if GATED:
        d = tl.load(dots + place, mask=there, other=0.0)
        tl.store(image_gates + row[None, :] * m + j[:, None], tl.sigmoid(tl.sum(heard * d, 2)), mask=seen)
        tl.store(text_gates + column * n + i, tl.sigmoid(tl.sum(told * d, 1)), mask=said)


@triton.jit
def _sigmoid(x, APPROXIMATE: tl.constexpr):
    """1 / (1 + exp(-x)), by the GPU's own tanh where its 11 digits are more than half precision keeps."""
    if APPROXIMATE:
        t = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x * 0.5], tl.float32, True, 1)
        y = t * 0.5 + 0.5
    else:
        y = tl.sigmoid(x)
    return y


@triton.jit(do_not_specialize=SIZES)
def _join_kernel(
    own, sent, weights, gates, bias, out,
    rows, senders, items, dim: tl.constexpr,
    JOIN: tl.constexpr, GATE: tl.constexpr, BIASED: tl.constexpr, APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr, J: tl.constexpr, ROWS: tl.constexpr, ITEMS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """ROWS receivers' rows hear J senders, D dimensions of it: equations 3, 5 to 7 and 9 up to the Linear.

    own: (rows, d), sent: (senders, items, d): vectors, or for `linear` what the Linear makes of them
    weights: (rows, senders, ITEMS); gates: (rows, senders); out: (senders, rows, d or 2 d)
    """
    across, groups = tl.cdiv(dim, D), tl.cdiv(senders, J)
    d = tl.program_id(0) % across * D + tl.arange(0, D)
    first = tl.program_id(0) // across % groups * J
    row = tl.program_id(0) // across // groups * ROWS + tl.arange(0, ROWS)
    item = tl.arange(0, ITEMS)
    within = (row < rows)[:, None] & (d < dim)[None, :]
    at = row.to(tl.int64)[:, None] * dim + d[None, :]
    x = tl.load(own + at, mask=within, other=0.0).to(tl.float32)
    if BIASED:
        b = tl.load(bias + d, mask=d < dim, other=0.0).to(tl.float32)
    for step in range(J):
        j = first + step
        here = (row < rows) & (j < senders)
        heard = tl.load(
            weights + (row.to(tl.int64) * senders + j)[:, None] * ITEMS + item[None, :], mask=here[:, None], other=0.0
        )
        y = tl.load(
            sent + (j * items + item).to(tl.int64)[:, None] * dim + d[None, :],
            mask=((item < items) & (j < senders))[:, None] & (d < dim)[None, :], other=0.0,
        )  # fmt: skip
        message = tl.dot(heard, y, input_precision=PRECISION)
        inside = within & (j < senders)
        base = out + j.to(tl.int64) * rows * dim * (2 if JOIN == "concat" else 1)
        if JOIN == "linear":
            joined = x + message
            if GATE:
                joined = joined * tl.load(gates + row.to(tl.int64) * senders + j, mask=here, other=0.0)[:, None]
            if BIASED:
                joined = joined + b[None, :]
            tl.store(base + at, joined.to(out.dtype.element_ty), mask=inside)
        elif JOIN == "concat":
            gate = _sigmoid(x * message, APPROXIMATE)
            twice = row.to(tl.int64)[:, None] * (2 * dim) + d[None, :]
            tl.store(base + twice, (gate * x).to(out.dtype.element_ty), mask=inside)
            tl.store(base + twice + dim, (gate * message).to(out.dtype.element_ty), mask=inside)
        else:
            joined = x * message if JOIN == "product" else x + message
            if GATE:
                joined = joined * _sigmoid(x * message, APPROXIMATE)
            tl.store(base + at, joined.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _aggregate_kernel(
    fused, own_logits, mask, scores, out, logits,
    receivers, senders, items, receiver_step, sender_step, dim: tl.constexpr,
    MEAN: tl.constexpr, CHUNKS: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One pair: the ReLU of equation 6, then equations 10 and 11 but for the residual's part of the sum.

    K items at a time, under a softmax that runs along: what was summed before shrinks where a larger logit comes.

    fused: (senders, receivers, items, d), before the ReLU; own_logits: (receivers, items), what the residual adds to
    the logits, the lowest number at pads; out: (receivers, senders, d), by steps of d; logits: (receivers, senders,
    items)
    """
    i, j = tl.program_id(0) % receivers, tl.program_id(0) // receivers
    d = tl.arange(0, D)
    base = fused + (j.to(tl.int64) * receivers + i) * items * dim
    written = logits + (i.to(tl.int64) * senders + j) * items
    if not MEAN:
        s = tl.load(scores + d, mask=d < dim, other=0.0)
    sums = tl.zeros((D,), tl.float32)
    largest, total = float("-inf"), 0.0
    for chunk in range(CHUNKS):
        item = chunk * K + tl.arange(0, K)
        there = item < items
        inside = there[:, None] & (d < dim)[None, :]
        f = tl.maximum(tl.load(base + item[:, None] * dim + d[None, :], mask=inside, other=0.0).to(tl.float32), 0.0)
        if MEAN:
            weight = (tl.load(mask + i * items + item, mask=there, other=0) != 0).to(tl.float32)
            total += tl.sum(weight, 0)
        else:
            z = tl.load(own_logits + i * items + item, mask=there, other=float("-inf"))
            z += tl.sum(f * s[None, :], 1)
            tl.store(written + item, z, mask=there)
            larger = tl.maximum(largest, tl.max(z, 0))
            shrink, weight = tl.exp(largest - larger), tl.exp(z - larger)
            sums, total, largest = sums * shrink, total * shrink + tl.sum(weight, 0), larger
        sums += tl.sum(f * weight[:, None], 0)
    place = out + (i.to(tl.int64) * receiver_step + j.to(tl.int64) * sender_step) * dim
    if MEAN:
        total = tl.maximum(total, 1.0)
    tl.store(place + d, (sums / total).to(out.dtype.element_ty), mask=d < dim)


@triton.jit(do_not_specialize=SIZES)
def _hear_kernel(
    own, sent, weights, gates, bias, own_logits, scores, out, logits,
    receivers, senders, rows, items, receiver_step, sender_step, dim: tl.constexpr,
    GATE: tl.constexpr, BIASED: tl.constexpr, PRECISION: tl.constexpr,
    CHUNKS: tl.constexpr, J: tl.constexpr, K: tl.constexpr, ITEMS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """One receiver and J senders, where the Linear went through both sides already: `_join_kernel` and
    `_aggregate_kernel` at once, for what lies between them need not be written then.

    rows: of a receiver; items: of a sender
    """
    groups = tl.cdiv(senders, J)
    i, first = tl.program_id(0) // groups, tl.program_id(0) % groups * J
    d, item = tl.arange(0, D), tl.arange(0, ITEMS)
    s = tl.load(scores + d, mask=d < dim, other=0.0)
    for step in range(J):
        j = first + step
        y = tl.load(
            sent + (j * items + item).to(tl.int64)[:, None] * dim + d[None, :],
            mask=((item < items) & (j < senders))[:, None] & (d < dim)[None, :], other=0.0,
        )  # fmt: skip
        pair = i.to(tl.int64) * senders + j
        sums = tl.zeros((D,), tl.float32)
        largest, total = float("-inf"), 0.0
        for chunk in range(CHUNKS):
            row = chunk * K + tl.arange(0, K)
            here = (row < rows) & (j < senders)
            at = (i * rows + row).to(tl.int64)
            heard = tl.load(
                weights + (at * senders + j)[:, None] * ITEMS + item[None, :], mask=here[:, None], other=0.0
            )
            f = tl.load(own + at[:, None] * dim + d[None, :], mask=here[:, None] & (d < dim)[None, :], other=0.0)
            f = f.to(tl.float32) + tl.dot(heard, y, input_precision=PRECISION)
            if GATE:
                f *= tl.load(gates + at * senders + j, mask=here, other=0.0)[:, None]
            if BIASED:
                f += tl.load(bias + d, mask=d < dim, other=0.0).to(tl.float32)[None, :]
            f = tl.maximum(f, 0.0)
            z = tl.load(own_logits + at, mask=here, other=float("-inf")) + tl.sum(f * s[None, :], 1)
            tl.store(logits + pair * rows + row, z, mask=here)
            larger = tl.maximum(largest, tl.max(z, 0))
            shrink, weight = tl.exp(largest - larger), tl.exp(z - larger)
            sums, total, largest = sums * shrink, total * shrink + tl.sum(weight, 0), larger
            sums += tl.sum(f * weight[:, None], 0)
        place = out + (i.to(tl.int64) * receiver_step + j.to(tl.int64) * sender_step) * dim
        tl.store(place + d, (sums / total).to(out.dtype.element_ty), mask=(d < dim) & (j < senders))


def row_of(items: int) -> int:
    """How many weights a row of so many items takes."""
    return max(16, power_of_two(items))


def attend(images: CAMPKept, texts: CAMPKept, gated: bool) -> Attention:
    """Equations 1, 2 and 4 of all pairs, and with `gated` one gate a region and word."""
    (n, regions, width), (m, words) = images.keys.shape, texts.mask.shape
    affinities = half_product(images.keys.flatten(0, 1), texts.keys.flatten(0, 1))
    dots = half_product(images.vectors.flatten(0, 1), texts.vectors.flatten(0, 1)) if gated else affinities
    R, W = row_of(regions), row_of(words)
    to_images, to_texts = images.keys.new_empty(n * regions, m, W), texts.keys.new_empty(m * words, n, R)
    gates = None
    if gated:
        gates = (affinities.new_empty(n * regions, m), affinities.new_empty(m * words, n))
    none = affinities  # stands where nothing is read or written
    G = max(1, min(power_of_two(m), (2048 if gated else 4096) // (R * W)))
    _attend_kernel[(triton.cdiv(m, G) * n,)](
        affinities, dots, images.mask, texts.mask, to_images, to_texts,
        gates[0] if gates else none, gates[1] if gates else none,
        n, m, regions, words, 1 / math.sqrt(width),
        GATED=gated, R=R, W=W, G=G, num_warps=max(4, R * W // 1024),
    )  # fmt: skip
    return Attention(to_images, to_texts, gates[0] if gates else None, gates[1] if gates else None)


def receive(
    side: Receiver,
    x: CAMPKept,
    y: CAMPKept,
    weights: Tensor,
    gates: Tensor | None,
    join: Join,
    vector_gate: bool,
    out: Tensor,
) -> None:
    """Receivers x having heard senders y: v* or t* of every pair into `out` (x, y, d).

    weights, gates: as `Attention` has them for these receivers; join: how a message joins what it reaches, `linear`
    where what is sent went through the Linear already; vector_gate: equations 5 and 7
    """
    own = x.vectors.new_zeros(x.mask.shape, dtype=torch.float32)
    if side.residual and side.scores is not None:
        own = x.vectors.float() @ side.scores
    own = own.masked_fill(~x.mask, LOWEST.value)
    if join == "linear" and side.scores is not None and _heard_at_once(weights.shape[-1], x.vectors):
        logits: Tensor | None = hear(side, x, y, weights, gates, own, out)
    else:
        fused = joined(side, x, y, weights, gates, join, vector_gate)
        logits = aggregate(side, x, fused, own, out)
    if side.residual and logits is None:
        out += mean_pool(x.vectors, x.mask).unsqueeze(1)
    elif logits is not None and side.residual:
        out.baddbmm_(logits.softmax(-1).to(out.dtype), x.vectors)


def joined(
    side: Receiver,
    x: CAMPKept,
    y: CAMPKept,
    weights: Tensor,
    gates: Tensor | None,
    join: Join,
    vector_gate: bool,
) -> Tensor:
    """Equations 3, 5 to 7 and 9 but for the ReLU and the residual: (senders, receivers' rows, d)."""
    (n, k, d), (m, items) = x.vectors.shape, y.mask.shape
    rows, half, linear = n * k, x.vectors.dtype, join == "linear"
    out = x.vectors.new_empty(m, rows, 2 * d if join == "concat" else d)
    biased = linear and side.bias is not None
    ROWS, width, J, warps, stages = JOIN_TILE
    stages = stages if weights.shape[-1] <= 64 else 2  # else the senders' tiles would not fit into smaller GPUs
    D = min(width, power_of_two(d))
    _join_kernel[(triton.cdiv(d, D) * triton.cdiv(m, J) * triton.cdiv(rows, ROWS),)](
        x.own if linear else x.vectors, y.sent if linear else y.vectors, weights,
        weights if gates is None else gates, side.bias if biased else weights, out,
        rows, m, items, d,
        JOIN=join, GATE=vector_gate or gates is not None, BIASED=biased, APPROXIMATE=x.vectors.is_cuda,
        PRECISION=precision_of(half), J=J, ROWS=ROWS, ITEMS=weights.shape[-1], D=D, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if linear:
        return out
    bias = None if side.bias is None else side.bias.to(half)
    return F.linear(out.flatten(0, 1), side.weight.to(half), bias)


def aggregate(side: Receiver, x: CAMPKept, fused: Tensor, own: Tensor, out: Tensor) -> Tensor | None:
    """Equations 6, 10 and 11 but for the residual: what the Linear gave (senders, receivers' rows, d) into `out`.

    own: (x, k), what the residual adds to the logits; returns the logits (x, y, k), None for a mean
    """
    (n, k, d), m = x.vectors.shape, out.shape[1]
    mean = side.scores is None
    logits = own.new_empty(0 if mean else n, m, k)
    numbers, warps = AGGREGATE_TILE
    D = power_of_two(d)
    K = max(1, min(power_of_two(k), numbers // D))
    _aggregate_kernel[(n * m,)](
        fused, own, x.mask, own if side.scores is None else side.scores, out, logits,
        n, m, k, out.stride(0) // d, out.stride(1) // d, d,
        MEAN=mean, CHUNKS=triton.cdiv(k, K), K=K, D=D, num_warps=warps,
    )  # fmt: skip
    return None if mean else logits


def hear(
    side: Receiver, x: CAMPKept, y: CAMPKept, weights: Tensor, gates: Tensor | None, own: Tensor, out: Tensor
) -> Tensor:
    """`joined` and `aggregate` in one, where the Linear moves out of the pair."""
    (n, k, d), m = x.vectors.shape, out.shape[1]
    logits = own.new_empty(n, m, k)
    K, J, warps = HEAR_TILE
    _hear_kernel[(n * triton.cdiv(m, J),)](
        x.own, y.sent, weights, weights if gates is None else gates, weights if side.bias is None else side.bias,
        own, side.scores, out, logits,
        n, m, k, y.mask.shape[1], out.stride(0) // d, out.stride(1) // d, d,
        GATE=gates is not None, BIASED=side.bias is not None, PRECISION=precision_of(x.vectors.dtype),
        CHUNKS=triton.cdiv(k, K), J=J, K=K, ITEMS=weights.shape[-1], D=power_of_two(d), num_warps=warps, num_stages=1,
    )  # fmt: skip
    return logits


def _heard_at_once(items: int, vectors: Tensor) -> bool:
    """Whether all that a sender of so many items sends fits into a multiprocessor's own memory."""
    numbers = items * power_of_two(vectors.shape[-1])
    return numbers <= HEARD and numbers * vectors.element_size() + ASIDE <= own_memory(vectors.device)
