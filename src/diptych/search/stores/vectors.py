"""All vectors of a store in memory (or mapped from a file), and exact search over them."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diptych.search.stores.store import Layout

# Scores of one block, in bytes: large enough for the product to run at full speed, small enough for any machine.
BLOCK_BYTES = 64 << 20
QUERIES_AT_ONCE = 256
# Multiplications of a product so small that several cores are no help.
FEW_PRODUCTS = 4 << 20
# Memory for the scores of a block, kept by each thread: fresh memory of this size costs a tenth of the product.
_kept = threading.local()


@dataclass(frozen=True)
class Vectors:
    """The vectors of every entry at one moment; never changed, so that readers need no lock.

    ids: (n,) int64, ascending: the entries' numbers
    parts: the vectors, (n_i, K, d) each, one part after the other in the order of `ids`
    gone: (n,) bool: entries that were deleted since
    work: bytes for the scores, or the candidates, that are looked at in one step
    """

    layout: Layout
    ids: np.ndarray
    parts: tuple[np.ndarray, ...]
    gone: np.ndarray
    work: int = BLOCK_BYTES

    @classmethod
    def empty(cls, layout: Layout) -> "Vectors":
        """No vectors."""
        return cls(layout, np.zeros(0, np.int64), (), np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def alive(self) -> int:
        """How many entries are not gone."""
        return len(self.ids) - int(self.gone.sum())

    def append(self, ids: np.ndarray, vectors: np.ndarray) -> "Vectors":
        """With more entries at the end: ids (m,), vectors (m, K, d)."""
        if not len(ids):
            return self
        parts = [*self.parts, vectors]
        # Like sizes are joined, so that there are few parts and each vector is copied few times; mapped ones stay.
        while len(parts) > 1 and len(parts[-2]) <= 2 * len(parts[-1]) and not any(map(is_mapped, parts[-2:])):
            parts[-2:] = [np.concatenate(parts[-2:])]
        gone = np.concatenate([self.gone, np.zeros(len(ids), bool)])
        return replace(self, ids=np.concatenate([self.ids, ids]), parts=tuple(parts), gone=gone)

    def without(self, ids: np.ndarray) -> "Vectors":
        """With these entries gone; ids that are not there do not matter."""
        rows = self.rows_of(ids)
        if not len(rows):
            return self
        gone = self.gone.copy()
        gone[rows] = True
        return replace(self, gone=gone)

    def rows_of(self, ids: np.ndarray) -> np.ndarray:
        """The rows, ascending, of those entries that are there."""
        if not len(self.ids) or not len(ids):
            return np.zeros(0, np.int64)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.unique(rows[self.ids[rows] == ids])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of some rows: (r,) -> (r, K, d), in the order of `rows`."""
        out = np.empty((len(rows), self.layout.set_size, self.layout.dim), np.float32)
        start = 0
        for part in self.parts:
            inside = (rows >= start) & (rows < start + len(part))
            out[inside] = part[rows[inside] - start]
            start += len(part)
        return out

    def blocks(self, size: int, first: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """The vectors from row `first` on, at most `size` rows at a time: (row of the first, (r, K, d))."""
        start = 0
        for part in self.parts:
            for offset in range(max(0, first - start), len(part), size):
                yield start + offset, part[offset : offset + size]
            start += len(part)

    def search(self, queries: np.ndarray, top: int, rows: np.ndarray | None = None, first: int = 0) -> "BestRows":
        """The best of all rows, of some ascending `rows`, or of those from `first` on: (q, K, d) -> (q, <= top)."""
        best = [
            self._search_some(queries[i : i + QUERIES_AT_ONCE], top, rows, first)
            for i in range(0, len(queries), QUERIES_AT_ONCE)
        ]
        return BestRows.stacked(best, len(queries))

    def _search_some(self, queries: np.ndarray, top: int, rows: np.ndarray | None, first: int) -> "BestRows":
        size = max(1024, self.work // (4 * max(1, len(queries)) * self.layout.set_size**2))
        if rows is not None and 2 * len(rows) < len(self):
            size = min(size, max(256, self.work // (4 * self.layout.set_size * self.layout.dim)))  # these are copied
            blocks = ((chunk, self.take(chunk)) for chunk in np.split(rows, range(size, len(rows), size)) if len(chunk))
            return BestRows.merged(
                [self._best(queries, block, top, chunk) for chunk, block in blocks], top, len(queries)
            )
        left_out = self.gone
        if rows is not None:
            left_out = np.ones(len(self), bool)
            left_out[rows] = self.gone[rows]
        best = []
        for start, block in self.blocks(size, first):
            numbers = np.arange(start, start + len(block))
            best.append(self._best(queries, block, top, numbers, left_out[start : start + len(block)]))
        return BestRows.merged(best, top, len(queries))

    def _best(
        self, queries: np.ndarray, block: np.ndarray, top: int, rows: np.ndarray, left_out: np.ndarray | None = None
    ) -> "BestRows":
        size = self.layout.set_size
        scores = similarities(queries, block, self.layout, _scratch(len(block) * size, len(queries) * size, self.work))
        hidden = self.gone[rows] if left_out is None else left_out
        if hidden.any():
            scores[:, torch.from_numpy(hidden)] = -torch.inf
        values, columns = top_of(scores, top)
        return BestRows(values, torch.from_numpy(rows)[columns])


@dataclass(frozen=True)
class BestRows:
    """Rows found for each query, best first: scores (q, r) float32 and rows (q, r); -inf where there is none."""

    scores: Tensor
    rows: Tensor

    @classmethod
    def merged(cls, answers: Sequence["BestRows"], top: int, queries: int) -> "BestRows":
        """The best of several answers to the same queries."""
        if not answers:
            return cls(torch.zeros(queries, 0), torch.zeros(queries, 0, dtype=torch.int64))
        scores = torch.cat([answer.scores for answer in answers], 1)
        values, columns = scores.topk(min(top, scores.shape[1]))
        return cls(values, torch.cat([answer.rows for answer in answers], 1).gather(1, columns))

    @classmethod
    def stacked(cls, answers: Sequence["BestRows"], queries: int) -> "BestRows":
        """The answers to several runs of queries, one after the other."""
        if not answers:
            return cls.merged([], 0, queries)
        return cls(torch.cat([answer.scores for answer in answers]), torch.cat([answer.rows for answer in answers]))


def is_mapped(part: np.ndarray) -> bool:
    """Whether an array lies in a file and not in memory."""
    return isinstance(part, np.memmap)


def similarities(queries: np.ndarray, entries: np.ndarray, layout: Layout, out: np.ndarray | None = None) -> Tensor:
    """What the layout compares of all queries (q, K, d) with entries (n, K, d): (q, n) float32.

    In memory the scores of one entry lie together: so the product is a tenth quicker. `out` is memory for the cosines,
    (n K, q K).
    """
    size, dim = queries.shape[1:]
    cosines = torch.from_numpy(_products(entries.reshape(-1, dim), queries.reshape(-1, dim), out))
    if size > 1:
        cosines = layout.compare(cosines.view(len(entries), size, len(queries), size).transpose(1, 2))
    return cosines.T


def _products(entries: np.ndarray, queries: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """All dot products between (n, d) and (q, d): (n, q)."""
    # One after another on one core: for one query twice as quick as BLAS, as quick as memory can be read; for few
    # products there is nothing to wait for, while the cores of BLAS wait for each other.
    if (len(queries) == 1 or entries.size * len(queries) <= FEW_PRODUCTS) and hasattr(np, "vecdot"):
        return np.asarray(np.vecdot(entries[:, None], queries[None]))
    return np.matmul(entries, queries.T, out=out)


def _scratch(rows: int, columns: int, at_most: int) -> np.ndarray:
    """Memory (rows, columns) of this thread, used again by the next call where it is not more than some bytes."""
    kept: np.ndarray | None = getattr(_kept, "scores", None)
    if kept is None or kept.size < rows * columns:
        kept = np.empty(rows * columns, np.float32)
        if kept.nbytes <= at_most:
            _kept.scores = kept
    return kept[: rows * columns].reshape(rows, columns)


def aligned_similarities(queries: np.ndarray, entries: np.ndarray, layout: Layout) -> Tensor:
    """The same between each query (q, K, d) and entries of its own (q, n, K, d): (q, n)."""
    cosines = torch.einsum("qkd,qnld->qnkl", torch.from_numpy(queries), torch.from_numpy(entries))
    return layout.compare(cosines)


def top_of(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest of each row and their columns, as `topk`, but quicker for many: (q, n) -> (q, <= top) x 2.

    The largest are in the groups with the largest maxima, and there are at most `top` of those. Best where the scores
    of one column lie together, as those of `similarities` do.
    """
    width, top = 32, min(top, scores.shape[1])
    whole = scores.shape[1] // width
    if len(scores) == 1 or whole < 4 * top:
        values, columns = scores.contiguous().topk(top)
        return values, columns
    # A group's members lie far apart, so that maxima are those of long stretches of memory.
    maxima = scores.T[: whole * width].unflatten(0, (width, whole)).amax(0)
    groups = maxima.T.contiguous().topk(top).indices
    inside = (groups[:, :, None] + whole * torch.arange(width)).flatten(1)
    after = torch.arange(whole * width, scores.shape[1]).expand(len(scores), -1)
    candidates = torch.cat([inside, after], 1)
    values, columns = scores.gather(1, candidates).topk(top)
    return values, candidates.gather(1, columns)
