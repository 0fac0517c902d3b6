# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""DivE's similarity of all pairs of sets on a GPU, without gradient: one product whose K x K cosines are never written.

A tile of the product holds whole sets. Its rows and columns are laid so that the elements of a set meet in few threads:
a thread of the tensor cores holds rows r and r + 8, and every eighth pair of columns. So of 16 rows, those of one
element come together, and of all columns too; what is summed over a set then mostly lies in a thread's own registers.
"""

import math
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from diptych.common.fused import own_memory

Similarity = Literal["smooth-chamfer", "chamfer", "mil", "mp"]
STAGES = 4  # steps of DIM that are on their way at once, where there is room
ROWS, COLUMNS = 128, 256  # vectors of a tile; its float32 sums take half of a multiprocessor's registers
DIM = 64  # dimensions that are multiplied at once
TOGETHER = 16  # tiles of rows that meet the same columns one after the other, while those are in the L2 cache


@triton.jit
def _log2(x, APPROXIMATE: tl.constexpr):
    """By the GPU's own instruction, whose error of 2^-22 is far below that of half precision's cosines."""
    if APPROXIMATE:
        y = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        y = tl.log2(x)
    return y


@triton.jit
def _sets_kernel(
    x, y, out, a, b, n, m, scale, share,
    dim: tl.constexpr, K: tl.constexpr, SIMILARITY: tl.constexpr, APPROXIMATE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DIM: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    """ROWS / K sets of x (n, K, dim) with COLUMNS / K sets of y (m, K, dim), into out (n, m).

    scale, share: of smooth-Chamfer, alpha over log 2, and log 2 over 2 K alpha; a, b: of the match probability
    """
    XS: tl.constexpr = ROWS // K
    YS: tl.constexpr = COLUMNS // K
    OF16: tl.constexpr = 16 // K
    across, tile = tl.cdiv(m, YS), tl.program_id(0)
    first = tile // (TOGETHER * across) * TOGETHER
    beside = min(tl.cdiv(n, XS) - first, TOGETHER)
    i = (first + tile % (TOGETHER * across) % beside) * XS
    j = tile % (TOGETHER * across) // beside * YS
    row, column, d = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DIM)
    # Beyond the last set the last is read again, and not written.
    x_set = tl.minimum(row // 16 * OF16 + row % OF16, n - 1 - i)
    y_set = tl.minimum(column % YS, m - 1 - j)
    x_at = ((x_set * K + row % 16 // OF16) * dim)[:, None] + d[None, :]
    y_at = ((y_set * K + column // YS) * dim)[None, :] + d[:, None]
    x += i.to(tl.int64) * (K * dim)
    y += j.to(tl.int64) * (K * dim)
    cosines = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, dim, DIM):
        if dim % DIM == 0:
            x_tile, y_tile = tl.load(x + x_at), tl.load(y + y_at)
        else:
            x_tile = tl.load(x + x_at, mask=(d < dim - start)[None, :], other=0.0)
            y_tile = tl.load(y + y_at, mask=(d < dim - start)[:, None], other=0.0)
        cosines = tl.dot(x_tile, y_tile, cosines, input_precision="ieee")
        x += DIM
        y += DIM
    if SIMILARITY == "smooth-chamfer":
        e = tl.reshape(tl.exp2(cosines * scale - scale), (ROWS // 16, K, OF16, K, YS))
        over_y = tl.sum(_log2(tl.sum(e, 3), APPROXIMATE), 1)
        over_x = tl.sum(_log2(tl.sum(e, 1), APPROXIMATE), 2)
        scores = 1.0 + (over_y + over_x) * share
    elif SIMILARITY == "mp":
        p = tl.sigmoid(cosines * tl.load(a) + tl.load(b))
        scores = tl.sum(tl.sum(tl.reshape(p, (ROWS // 16, K, OF16, K, YS)), 3), 1) / (K * K)
    else:
        c = tl.reshape(cosines, (ROWS // 16, K, OF16, K, YS))
        if SIMILARITY == "mil":
            scores = tl.max(tl.max(c, 3), 1)
        else:
            scores = (tl.sum(tl.max(c, 3), 1) + tl.sum(tl.max(c, 1), 2)) / (2 * K)
    x_set, y_set = i + tl.arange(0, XS), j + tl.arange(0, YS)
    at = x_set.to(tl.int64)[:, None] * m + y_set[None, :]
    tl.store(out + at, tl.reshape(scores, (XS, YS)), mask=(x_set < n)[:, None] & (y_set < m)[None, :])


def set_scores(
    x: Tensor, y: Tensor, similarity: Similarity, alpha: float, a: Tensor | None = None, b: Tensor | None = None
) -> Tensor:
    """The similarity of all pairs of sets of unit vectors, (n, K, d) and (m, K, d) of one type: (n, m) float32.

    As `smooth_chamfer`, `chamfer`, `mil` and `mp` of `set_similarity` define it; K is 2, 4, 8 or 16. Of smooth-Chamfer
    exp(alpha (c - 1)) is summed, which no cosine takes beyond float32 while alpha is at most 40.
    a, b: of the match probability, one number each
    """
    n, size, dim = x.shape
    m = len(y)
    out = torch.empty(n, m, dtype=torch.float32, device=x.device)
    if out.numel():
        tiles = triton.cdiv(n, ROWS // size) * triton.cdiv(m, COLUMNS // size)
        stages = own_memory(x.device) // ((ROWS + COLUMNS) * DIM * x.element_size())
        with torch.cuda.device_of(x):
            _sets_kernel[(tiles,)](
                x.contiguous(), y.contiguous(), out, a, b, n, m, alpha / math.log(2), math.log(2) / (2 * size * alpha),
                dim=dim, K=size, SIMILARITY=similarity, APPROXIMATE=x.is_cuda,
                ROWS=ROWS, COLUMNS=COLUMNS, DIM=DIM, TOGETHER=TOGETHER, num_warps=8, num_stages=min(STAGES, stages),
            )  # fmt: skip
    return out
