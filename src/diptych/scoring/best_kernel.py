# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The best k of each query on a GPU: blocks of scores are read once a direction, and no matrix of keys is written."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from diptych.scoring.blocks import Block
from diptych.scoring.candidates import Query

MOST = 16  # the largest k: what is kept of a query lies in registers, and each is looked for among all others
# Queries and items that a program of one warp holds at once: along whichever lies side by side in memory.
ALONG_ITEMS, ALONG_QUERIES = (1, 1024), (8, 128)
ENOUGH = 256  # programs that keep every multiprocessor busy; of fewer queries the items are split between several
PINNED = 1 << 22  # results of more numbers are not worth page-locked memory
LOW = tl.constexpr((1 << 32) - 1)
LOWEST = tl.constexpr(-(1 << 63))
HIGHEST = tl.constexpr((1 << 63) - 1)


@triton.jit
def _key(score, place):
    """One whole number for both: greater for a higher score, at equal scores for an earlier position."""
    bits = tl.where(score == 0.0, 0.0, score).to(tl.int32, bitcast=True)  # -0 and 0 are equal
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (LOW - place)


@triton.jit(do_not_specialize=["base", "first_row", "first_place", "n", "m", "span"])
def _best_kernel(
    scores, rows, places, best_scores, best_places, base, first_row, first_place, n, m, span,
    query_stride, item_stride,
    PLACES: tl.constexpr, FRESH: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr,
    QUERIES: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """QUERIES of n queries with a span of m items: the best K of them and, unless FRESH, of what was best before.

    scores: of query q and item i at q query_stride + i item_stride
    rows: (n,) where each query's best lie, or none: from first_row on
    places: `first`: items are at first_place and after it; `each`: at places (m,); `own`: at places laid as the scores
    best_scores, best_places: (rows, parts, K) from base on, best first; place -1 where there was none
    """
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    slot = tl.arange(0, SLOTS).to(tl.int64)
    asked, held = query < n, slot < K
    if rows is None:
        row = (first_row + query).to(tl.int64)
    else:
        row = tl.load(rows + query, mask=asked, other=0)
    at = base + (row * tl.num_programs(1) + tl.program_id(1)) * K
    # Below all keys and each other: the least is always one slot.
    best = tl.zeros((QUERIES, SLOTS), tl.int64) + (slot + LOWEST)[None, :]
    if not FRESH:
        old, known = at[:, None] + slot[None, :], asked[:, None] & held[None, :]
        was = tl.load(best_places + old, mask=known, other=-1)
        best = tl.where(was >= 0, _key(tl.load(best_scores + old, mask=known, other=0.0), was), best)
    best = tl.where(held[None, :], best, HIGHEST)
    begin = tl.program_id(1) * span
    end = min(begin + span, m)
    for start in range(begin, end, ITEMS):
        item = start + tl.arange(0, ITEMS)
        there = asked[:, None] & (item < end)[None, :]
        of = query.to(tl.int64)[:, None] * query_stride + item.to(tl.int64)[None, :] * item_stride
        score = tl.load(scores + of, mask=there, other=0.0)
        if PLACES == "own":
            place = tl.load(places + of, mask=there, other=-1)
            there = there & (place >= 0)
        elif PLACES == "each":
            place = tl.load(places + item, mask=item < end, other=0)[None, :]
        else:
            place = (first_place + item).to(tl.int64)[None, :]
        keys = tl.where(there, _key(score, place), LOWEST)
        top, worst = tl.max(keys, 1), tl.min(best, 1)
        while tl.max((top > worst).to(tl.int32), 0) > 0:
            best = tl.where((best == worst[:, None]) & (top > worst)[:, None], top[:, None], best)
            keys = tl.where(keys == top[:, None], LOWEST, keys)
            top, worst = tl.max(keys, 1), tl.min(best, 1)
    best = tl.where(held[None, :], best, LOWEST)
    for rank in tl.static_range(K):
        top = tl.max(best, 1)
        best = tl.where(best == top[:, None], LOWEST, best)
        ordered = (top >> 32).to(tl.int32)
        score = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        tl.store(best_scores + at + rank, score, mask=asked)
        tl.store(best_places + at + rank, tl.where(top < LOWEST + SLOTS, -1, LOW - (top & LOW)), mask=asked)


@dataclass(frozen=True)
class Best:
    """The best k of each query so far, best first: flat float32 scores and int64 positions, (queries, k) from base on.

    Where `fresh`, nothing was looked at yet, and whatever they hold is overwritten.
    """

    scores: Tensor
    places: Tensor
    k: int
    base: int = 0
    fresh: bool = False


def add_best(scores: Tensor, rows: Tensor | int, places: Tensor | int, best: Best) -> None:
    """The best of scores (queries, items), and of what was best before, written in its place.

    rows: which of the best is each query's, (queries,), or the first of a run
    places: the items' positions, (items,), in any order, or the first of a run
    """
    n, m = scores.shape
    span, (queries, items) = m, ALONG_ITEMS if scores.stride(1) == 1 else ALONG_QUERIES
    parts = max(1, min(triton.cdiv(m, 4 * items), ENOUGH // triton.cdiv(n, queries)))
    if parts > 1:
        # Of few queries each part of the items has its own best first, and those are compared.
        span = triton.cdiv(m, parts)
        some = torch.empty(n, parts * best.k, device=scores.device)
        own = Best(some, torch.empty_like(some, dtype=torch.int64), best.k, fresh=True)
        _launch(scores, 0, places, own, parts, span)
        scores, places, span = some, own.places, parts * best.k
    _launch(scores, rows, places, best, 1, span)


def _launch(scores: Tensor, rows: Tensor | int, places: Tensor | int, best: Best, parts: int, span: int) -> None:
    n, m = scores.shape
    queries, items = ALONG_ITEMS if scores.stride(1) == 1 else ALONG_QUERIES
    row, first_row = (None, rows) if isinstance(rows, int) else (rows, 0)
    place, first_place = (None, places) if isinstance(places, int) else (places, 0)
    kind = "first" if place is None else "each" if place.dim() == 1 else "own"
    _best_kernel[(triton.cdiv(n, queries), parts)](
        scores, row, place, best.scores, best.places, best.base, first_row, first_place, n, m, span,
        scores.stride(0), scores.stride(1),
        PLACES=kind, FRESH=best.fresh, K=best.k, SLOTS=triton.next_power_of_2(best.k),
        QUERIES=queries, ITEMS=items, num_warps=1,
    )  # fmt: skip


class BestOnGPU:
    """The best of each query so far, of one direction or both, in two tensors."""

    def __init__(self, wanted: dict[Query, tuple[int, int]], device: torch.device) -> None:
        """wanted: by what the queries are, how many there are and how many items are looked for each."""
        self.wanted = wanted
        total = sum(queries * k for queries, k in wanted.values())
        self.scores = torch.empty(total, device=device)
        self.places = torch.empty(total, dtype=torch.int64, device=device)
        self._run = -1

    def add(self, block: Block) -> None:
        """Blocks come as `score_blocks` gives them: runs of pictures in order, and of each run all sentences."""
        first = block.images.start
        base = 0
        for query, (queries, k) in self.wanted.items():
            if query == "texts":
                best = Best(self.scores, self.places, k, base, fresh=first == 0)
                add_best(block.scores.T, block.columns, first, best)
            else:
                best = Best(self.scores, self.places, k, base, fresh=first != self._run)
                add_best(block.scores, first, block.columns, best)
            base += queries * k
        self._run = first

    def found(self) -> dict[Query, tuple[Tensor, Tensor]]:
        """Scores and positions (q, k) of each direction, in main memory."""
        # Into page-locked memory, which both copies reach without waiting for each other.
        soon = self.scores.is_cuda and self.scores.numel() <= PINNED
        scores, places = (held.to("cpu", non_blocking=soon) for held in (self.scores, self.places))
        if soon:
            torch.cuda.current_stream(self.scores.device).synchronize()
        both: dict[Query, tuple[Tensor, Tensor]] = {}
        base = 0
        for query, (queries, k) in self.wanted.items():
            shape, stride = (queries, k), (k, 1)
            both[query] = scores.as_strided(shape, stride, base), places.as_strided(shape, stride, base)
            base += queries * k
        return both
