"""Each query with its own candidates: the second stage of a search, or a protocol with few pairs."""

from typing import Literal

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.progress import track
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.calls import check_dtype, score_aligned
from diptych.matchers.bounded.groups import like_lengths
from diptych.matchers.bounded.memory import MemoryBudget, item_bytes, move
from diptych.matchers.kept import Kept

Query = Literal["texts", "images"]


def score_candidates(
    matcher: Matcher,
    queries: Kept,
    items: Kept,
    candidates: Tensor,
    query: Query,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> Tensor:
    """Scores of each query's candidates: (q, c) float32 on the CPU, -∞ where there is no candidate.

    candidates: (q, c) int64 positions among the items, -1 for none; query q may have any of them, in any order
    query: what the queries are; the items are the other side
    memory, dtype, progress: as in `score_blocks`

    >>> candidates = torch.tensor([[2, 0], [1, -1], [0, 1]])  # pictures of each of three sentences
    >>> score_candidates(matcher, texts, images, candidates, query="texts").isfinite().sum()
    tensor(5)
    """
    check_dtype(dtype)
    check_query(query)
    candidates = candidates.cpu()
    _check(candidates, queries, items)
    budget = MemoryBudget(matcher.device, memory)
    scores = torch.full(candidates.shape, float("-inf"))
    rows, columns = (candidates >= 0).nonzero(as_tuple=True)
    positions = candidates[rows, columns]
    if len(rows) == 0:
        return scores
    # A side that fits is moved once: picking items from it is far faster there than sending every pair across.
    queries, items = (_near(kept, budget) for kept in (queries, items))
    images, texts = (queries, items) if query == "images" else (items, queries)
    pictures, sentences = (rows, positions) if query == "images" else (positions, rows)
    asked, offered = queries.extents[rows], items.extents[positions]
    regions, words = (asked, offered) if query == "images" else (offered, asked)
    # Each pair's vectors are picked out of their sides, so they count like the matcher's own working memory.
    most_pairs = max(1, min(2 * budget.side, budget.work) // (item_bytes(images) + item_bytes(texts)))

    def most(longest: int) -> int:
        return min(most_pairs, budget.pairs(matcher.pair_floats(int(regions.max()), longest)))

    # Pairs of like word count, and within those the pictures of like size next to each other.
    groups = [group[part] for group in like_lengths(words, most) for part in like_lengths(regions[group])]
    found = []
    for pairs in track(groups, progress, unit="groups") if progress else groups:
        chosen, told = pictures[pairs].to(images.device), sentences[pairs].to(texts.device)
        longest = int(regions[pairs].max()), int(words[pairs].max())
        found.append(score_aligned(matcher, images, chosen, texts, told, longest, budget, dtype))
    order = torch.cat(groups)
    scores[rows[order], columns[order]] = torch.cat(found).cpu()
    return scores


def _near(kept: Kept, budget: MemoryBudget) -> Kept:
    """One side on the device where it fits, else where it is."""
    moved = move(kept, [slice(None)], kept.extents, budget.device) if budget.holds(kept) else None
    return kept if moved is None else moved[0]


def check_query(query: str) -> None:
    """An error for a side that there is not."""
    if query not in ("texts", "images"):
        raise DiptychError(f"query: expected 'texts' or 'images', got {query!r}")


def _check(candidates: Tensor, queries: Kept, items: Kept) -> None:
    if candidates.dim() != 2 or len(candidates) != len(queries) or candidates.dtype != torch.int64:
        raise DiptychError(
            f"candidates: expected int64 positions of shape ({len(queries)}, c), "
            f"got {candidates.dtype} of shape {tuple(candidates.shape)}"
        )
    if candidates.numel() and not -1 <= int(candidates.min()) <= int(candidates.max()) < len(items):
        raise DiptychError(f"candidates: expected positions from 0 to {len(items) - 1}, or -1 for none")
