"""Each query with its own candidates: the second stage of a search, or a protocol with few pairs."""

from typing import Literal

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.progress import track
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.calls import check_dtype, precision, score_aligned, score_matrix
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
    if candidates.numel() == 0:
        return torch.full(candidates.shape, float("-inf"))
    budget = MemoryBudget(matcher.device, memory)
    # The same for all queries, as of a single one, they make a matrix: nothing is picked out once a pair.
    if len(candidates) == 1 or bool((candidates == candidates[0]).all()):
        shared = _score_shared(matcher, queries, items, candidates[0], query, budget, dtype, progress)
        if shared is not None:
            return shared
    return _score_pairs(matcher, queries, items, candidates, query, budget, dtype, progress)


def _score_shared(
    matcher: Matcher,
    queries: Kept,
    items: Kept,
    candidates: Tensor,
    query: Query,
    budget: MemoryBudget,
    dtype: torch.dtype | None,
    progress: str | None,
) -> Tensor | None:
    """As `score_candidates`, of candidates (c,) that all queries have; None where they and the queries do not fit."""
    real = candidates >= 0
    there = bool(real.all())
    chosen = candidates if there else candidates[real]
    scores = torch.full((len(queries), len(candidates)), float("-inf"))
    if len(chosen) == 0:
        return scores
    asked, offered = queries.extents, items.extents[chosen]
    picked = item_bytes(items) * len(chosen)
    most = None if budget.allows(picked) else budget.items(items)
    if not budget.allows(item_bytes(queries) * len(queries)) and not budget.holds(queries):
        return None
    few = False
    if most is None and budget.device.type != "cpu":
        # There the padding of few pairs takes less time than one more call.
        longest = int(asked.max()), int(offered.max())
        with precision(budget.device, dtype):
            floats = matcher.pair_floats(*(longest if query == "images" else longest[::-1]))
        few = budget.allows(4 * len(asked) * len(chosen) * floats)
    rows = [torch.arange(len(asked))] if few else like_lengths(asked)
    columns = [torch.arange(len(chosen))] if few else like_lengths(offered, None if most is None else lambda _: most)
    asking = move(queries, _places(rows), asked, budget.device)
    if asking is None:
        return None
    found = []
    for group in track(columns, progress, unit="groups") if progress else columns:
        picks = chosen if len(columns) == 1 else chosen[group]
        offering = move(items, [picks], items.extents, budget.device)
        if offering is None:
            return None
        parts = [
            score_matrix(matcher, one, offering[0], budget, dtype)
            if query == "images"
            else score_matrix(matcher, offering[0], one, budget, dtype).T
            for one in asking
        ]
        found.append(parts[0] if len(parts) == 1 else torch.cat(parts))
    whole = (found[0] if len(found) == 1 else torch.cat(found, 1)).cpu()
    if len(rows) > 1:
        whole = whole[torch.cat(rows).argsort()]
    if len(columns) > 1:
        whole = whole[:, torch.cat(columns).argsort()]
    if there:
        return whole.contiguous()
    scores[:, real] = whole
    return scores


def _places(groups: list[Tensor]) -> list[Tensor | slice]:
    """Positions of each group; of a single one all, as they lie."""
    return [slice(None)] if len(groups) == 1 else [*groups]


def _score_pairs(
    matcher: Matcher,
    queries: Kept,
    items: Kept,
    candidates: Tensor,
    query: Query,
    budget: MemoryBudget,
    dtype: torch.dtype | None,
    progress: str | None,
) -> Tensor:
    """As `score_candidates`, pair by pair."""
    scores = torch.full(candidates.shape, float("-inf"))
    rows, columns = (candidates >= 0).nonzero(as_tuple=True)
    positions = candidates[rows, columns]
    if len(rows) == 0:
        return scores
    # A side that fits is moved once: picking items from it is far faster there than sending every pair across.
    queries, items = (_near(kept, budget) for kept in (queries, items))
    images, texts = (queries, items) if query == "images" else (items, queries)
    pictures, sentences = (rows, positions) if query == "images" else (positions, rows)
    regions, words = images.extents[pictures], texts.extents[sentences]
    most_regions = int(regions.max())
    # Each pair's vectors are picked out of their sides, so they count like the matcher's own working memory.
    picked = item_bytes(images) + item_bytes(texts)

    def most(longest: int) -> int:
        most_pairs = max(1, min(2 * budget.side, budget.work) // picked)
        return min(most_pairs, budget.pairs(matcher.pair_floats(most_regions, longest)))

    taken = len(rows) * (picked + 4 * matcher.pair_floats(most_regions, int(words.max())))
    if budget.allows(taken):
        groups = like_lengths(words)
    else:
        groups = like_lengths(words, most)
    # Pairs of like word count, and within those the pictures of like size next to each other.
    groups = [group[part] for group in groups for part in like_lengths(regions[group])]
    found = []
    for pairs in track(groups, progress, unit="groups") if progress else groups:
        longest = int(regions[pairs].max()), int(words[pairs].max())
        found.append(score_aligned(matcher, images, pictures[pairs], texts, sentences[pairs], longest, budget, dtype))
    order = torch.cat(groups)
    scores[rows[order], columns[order]] = torch.cat(found).cpu()
    return scores


def _near(kept: Kept, budget: MemoryBudget) -> Kept:
    """One side on the device where it fits, else where it is."""
    if kept.device == budget.device:
        return kept
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
