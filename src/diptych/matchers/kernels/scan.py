# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""SCAN's scores of all pairs on a GPU, without gradient.

Three steps: unit vectors become rows of half precision, 0 at pads; one product of the field's own library gives all
affinities in float32; and one kernel reads each of them once and writes one score a pair. Attention stays in registers.
"""

import math
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from diptych.common.fused import half_product
from diptych.matchers.kept import Kept
from diptych.matchers.kernels.products import power_of_two

AffinityNorm = Literal["clipped-l2", "l2", "clipped-l1", "l1", "clipped", "softmax", "none"]
Aggregation = Literal["mean", "lse", "max", "sum"]
LOG2E = tl.constexpr(math.log2(math.e))
EPSILON = tl.constexpr(1e-8)
LOWEST = tl.constexpr(-1e30)
TINY = tl.constexpr(1e-30)
# Rows of an item's affinities begin at multiples of 16 bytes, so that four are read at once.
TOGETHER = 4
# Query vectors that a program takes at once, and how often: what it reads of its attended item serves all of them.
QUERIES, STEPS = 64, 16
# Numbers of a tile that a warp takes: more do not fit into its registers.
OF_A_WARP = 1024
# With weights exp(λ x) of |x| <= 1, λ up to this keeps all within half precision's range, whatever the largest is.
MOST_LAMBDA = 10.0
HIGHEST = tl.constexpr(15.0)  # 2^15 is near half precision's largest number
# Sizes that differ from call to call must not each compile a kernel of their own.
SIZES = ["m", "k", "quads", "mask_n", "mask_k", "gram_n", "gram_k", "gram_r", "out_n", "out_m"]


@triton.jit
def _rows_kernel(
    vectors, mask, rows, squares, count, k, padded, dim, vectors_n, vectors_k, mask_n, mask_k,
    ROWS: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """ROWS of the `count` rows: vectors (n, k, dim) as rows (n * padded, dim) of their type, and their squared norms.

    Pads become rows of 0 with the squared norm -1.
    """
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    d = tl.arange(0, DIM)
    item, element = row // padded, row % padded
    inside = (row < count) & (element < k)
    real = tl.load(mask + item * mask_n + element * mask_k, mask=inside, other=0) != 0
    source = item * vectors_n + element * vectors_k
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, dim, DIM):
        there = (start + d < dim)[None, :]
        x = tl.load(vectors + source[:, None] + (start + d)[None, :], mask=real[:, None] & there, other=0.0)
        x = x.to(tl.float32)
        total += tl.sum(x * x, 1)
        at = rows + row[:, None] * dim + (start + d)[None, :]
        tl.store(at, x.to(rows.dtype.element_ty), mask=(row < count)[:, None] & there)
    tl.store(squares + row, tl.where(real, total, -1.0), mask=row < count)


@triton.jit
def _sharpened(s, asks, scale, NORM: tl.constexpr, CLIPPED: tl.constexpr):
    """λ times `affinity_norm` of affinities (G, Q, K), over the queries, whose pads have affinities of 0.

    The paper's is s̄ of its equation 3: s over its l2 norm, with a leaky ReLU in place of the ReLU.
    """
    if NORM == "softmax":
        c = tl.where(asks[:, :, None], tl.exp2(s * LOG2E), 0.0)  # unit vectors' affinities are at most 1
        factor = scale / (tl.sum(c, 1) + TINY)
    else:
        c = s
        if CLIPPED:
            c = tl.maximum(s, 0.1 * s)
        if NORM == "l2":
            factor = scale * tl.rsqrt(tl.sum(c * c, 1) + EPSILON * EPSILON)
        elif NORM == "l1":
            factor = scale / (tl.sum(tl.abs(c), 1) + EPSILON)
        else:
            factor = tl.zeros((s.shape[0], s.shape[2]), tl.float32) + scale
    return c * factor[:, None, :]


@triton.jit
def _aggregated(cosines, asks, scale, HOW: tl.constexpr):
    """Equations 5 and 6, or the sum or the maximum, of the real cosines (G, Q): (G,), 0 where there is none."""
    count = tl.sum(tl.where(asks, 1.0, 0.0), 1)
    if HOW == "max":
        score = tl.max(tl.where(asks, cosines, LOWEST), 1)
    elif HOW == "lse":
        x = tl.where(asks, cosines * scale, LOWEST)
        peak = tl.max(x, 1)
        score = (tl.log2(tl.sum(tl.exp2(x - peak[:, None]), 1)) + peak) / scale
    else:
        score = tl.sum(tl.where(asks, cosines, 0.0), 1)
        if HOW == "mean":
            score = score / tl.maximum(count, 1.0)
    return tl.where(count > 0, score, 0.0)


@triton.jit(do_not_specialize=SIZES)
def _scan_kernel(
    affinities, gram, mask, squares, out, m, k, quads, mask_n, mask_k, gram_n, gram_k, gram_r, out_n, out_m,
    scale, lse_scale,
    NORM: tl.constexpr, CLIPPED: tl.constexpr, BOUNDED: tl.constexpr, HOW: tl.constexpr, WEIGHTS: tl.constexpr,
    FOUR: tl.constexpr, K: tl.constexpr, KEPT: tl.constexpr, Q: tl.constexpr, G: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """The scores of one attended item with G x STEPS of the m query items, into out (n, m).

    affinities: (n, k, m, q), v_r . w, 0 at pads; q is FOUR * quads; squares: (m, q), ‖w‖², -1 for a pad
    gram: (n, k, k); mask: (n, k); scale, lse_scale: λ1 and λ2 over log 2
    A cosine does not change with its context's length, so the attention needs not add up to 1, and Σ_r e_r (v_r . w)
    over the root of eᵀ G e ‖w‖² is equation 4 with e = exp(λ1 s̄), equation 3 without its denominator.
    """
    spans = tl.cdiv(m, G * STEPS)
    i, first = (tl.program_id(0) // spans).to(tl.int64), tl.program_id(0) % spans * (G * STEPS)
    q = quads * FOUR
    r, row = tl.arange(0, K), tl.arange(0, G * Q)
    # Known when the kernel is compiled: nothing is computed for the rows from KEPT to K.
    kept = r < KEPT
    real = tl.load(mask + i * mask_n + r * mask_k, mask=kept & (r < k), other=0) != 0
    both = real[:, None] & real[None, :]
    products = tl.load(gram + i * gram_n + r[:, None] * gram_k + r[None, :] * gram_r, mask=both, other=0.0).to(WEIGHTS)
    lift = tl.where(real, HIGHEST - scale if BOUNDED else 0.0, LOWEST)
    which, word = row // Q, row % Q
    columns = (m * q).to(tl.int64)
    tile = affinities + i * k * columns + r[None, :] * columns + (which * q + word)[:, None]
    for j in range(first, tl.minimum(first + G * STEPS, m), G):
        inside = (word < q) & (j + which < m)
        square = tl.load(squares + j * q + which * q + word, mask=inside, other=-1.0)
        asks = tl.reshape(square >= 0, (G, Q))
        s = tl.load(tile + j * q, mask=inside[:, None] & (kept & (r < k))[None, :], other=0.0)
        x = tl.reshape(_sharpened(tl.reshape(s, (G, Q, K)), asks, scale, NORM, CLIPPED), (G * Q, K)) + lift[None, :]
        if not BOUNDED:
            x -= tl.max(tl.where(kept[None, :], x, LOWEST), 1)[:, None]
        e = tl.where(kept[None, :], tl.exp2(x), 0.0)
        dots = tl.sum(e * s, 1)
        mixed = tl.dot(e.to(WEIGHTS), products, input_precision="ieee")
        length = tl.sum(tl.where(kept[None, :], mixed * e, 0.0), 1)
        # Of a context or a query of length 0 the product is 0 too. Rounding may leave a tiny negative square.
        cosines = dots * tl.rsqrt(tl.maximum(length * square, TINY))
        cosines = tl.reshape(tl.minimum(tl.maximum(cosines, -1.0), 1.0), (G, Q))
        item = j + tl.arange(0, G)
        at = out + i * out_n + item.to(tl.int64) * out_m
        tl.store(at, _aggregated(cosines, asks, lse_scale, HOW), mask=item < m)


def scan_scores(
    attended: Kept,
    gram: Tensor,
    queries: Kept,
    out: Tensor,
    *,
    dtype: torch.dtype,
    affinity_norm: AffinityNorm,
    softmax_lambda: float,
    aggregation: Aggregation,
    lse_lambda: float,
) -> None:
    """SCAN's scores of n attended items with m query items, written to `out` (n, m), float32 with any strides.

    attended: unit vectors (n, k, d); gram: their inner products (n, k, k); queries: unit vectors (m, q, d); k and q up
    to 128
    dtype: what the affinities are multiplied in; their sums, and all that follows, are float32. Only lengths of
    contexts multiply float16, whose 11 digits weights and inner products of up to 1 keep (float32 with float32)
    """
    (n, k), (m, q) = attended.mask.shape, queries.mask.shape
    if n * m == 0:
        return
    vectors, _ = _rows(attended, dtype, together=1)
    asked, squares = _rows(queries, dtype, together=TOGETHER)
    with torch.autocast(out.device.type, enabled=False):
        affinities = half_product(vectors, asked)
    norm = affinity_norm.removeprefix("clipped").removeprefix("-")
    normalised = norm in ("l2", "l1", "softmax")
    block_k, block_q = max(16, power_of_two(k)), max(TOGETHER, power_of_two(q))
    group = max(1, QUERIES // block_q)
    mask = attended.mask.view(torch.uint8)
    with torch.cuda.device_of(out):
        _scan_kernel[(n * triton.cdiv(m, group * STEPS),)](
            affinities, gram, mask, squares, out, m, k, triton.cdiv(q, TOGETHER),
            *mask.stride(), *gram.stride(), *out.stride(),
            softmax_lambda * math.log2(math.e), lse_lambda * math.log2(math.e),
            NORM=norm, CLIPPED=affinity_norm.startswith("clipped"),
            BOUNDED=normalised and softmax_lambda <= MOST_LAMBDA, HOW=aggregation,
            WEIGHTS=tl.float32 if dtype == torch.float32 else tl.float16,
            FOUR=TOGETHER, K=block_k, KEPT=min(block_k, triton.cdiv(k, 8) * 8), Q=block_q, G=group, STEPS=STEPS,
            num_warps=block_k * block_q * group // OF_A_WARP, num_stages=1,
        )  # fmt: skip


def _rows(side: Kept, dtype: torch.dtype, together: int) -> tuple[Tensor, Tensor]:
    """The vectors (n, k, d) as rows (n * k', d) of `dtype`, with k' a multiple of `together`; and ‖.‖² (n * k',).

    Pads are rows of 0 with a squared norm of -1.
    """
    vectors = side.vectors if side.vectors.stride(2) == 1 else side.vectors.contiguous()
    n, k, d = vectors.shape
    padded = triton.cdiv(k, together) * together
    rows = torch.empty(n * padded, d, dtype=dtype, device=vectors.device)
    squares = torch.empty(n * padded, dtype=torch.float32, device=vectors.device)
    mask = side.mask.view(torch.uint8)
    of_a_program = 4
    with torch.cuda.device_of(vectors):
        _rows_kernel[(triton.cdiv(n * padded, of_a_program),)](
            vectors, mask, rows, squares, n * padded, k, padded, d,
            vectors.stride(0), vectors.stride(1), *mask.stride(),
            ROWS=of_a_program, DIM=min(1024, power_of_two(d)), num_warps=4,
        )  # fmt: skip
    return rows, squares
