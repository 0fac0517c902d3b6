"""Every pair of many pictures and sentences, block by block, in bounded memory."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.calls import check_dtype, score_matrix
from diptych.matchers.bounded.groups import like_lengths
from diptych.matchers.bounded.memory import MemoryBudget, move, part_of
from diptych.matchers.kept import Kept


@dataclass(frozen=True)
class Block:
    """Scores of a run of pictures with some of the sentences.

    images: the run
    texts: (t,) positions of the sentences, in any order, in main memory
    columns: (t,) the same, on the matcher's device
    scores: (pictures of the run, t) float32, on the matcher's device

    >>> block = next(score_blocks(matcher, images, texts))
    >>> block.images, block.scores.shape
    (slice(0, 3, None), torch.Size([3, 3]))
    """

    images: slice
    texts: Tensor
    columns: Tensor
    scores: Tensor


def score_blocks(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> Iterator[Block]:
    """Every pair once: runs of pictures in order, and for each run all sentences before the next run.

    What is kept may be on any device, or in a memory-mapped file; it goes to the matcher's device block by block.
    Scores stay there: a GPU is waited for by whoever looks at them, not between blocks.
    memory: bytes that scoring may take there; without it, what is free
    dtype: bfloat16 or float16 compute large products so (autocast); float32 otherwise
    progress: what a progress bar says; without it there is none

    >>> sum(block.scores.numel() for block in score_blocks(matcher, images, texts))
    9
    """
    check_dtype(dtype)
    budget = MemoryBudget(matcher.device, memory)
    if len(images) == 0 or len(texts) == 0:
        return
    device = matcher.device
    regions, words = images.extents, texts.extents
    usual = budget.pairs(matcher.pair_floats(int(regions.max()), int(words.median())))
    rows = min(len(images), usual // min(len(texts), isqrt(usual)), budget.items(images))

    def most(longest: int) -> int:
        return min(budget.pairs(matcher.pair_floats(int(regions.max()), longest)) // rows, budget.items(texts))

    groups = like_lengths(words, most)
    columns = [group.to(device) for group in groups]
    moved = move(texts, groups, words, device) if budget.holds(texts) else None
    with progress_bar("pairs") if progress else nullcontext() as bar:
        task = bar.add_task(progress or "", total=len(images) * len(texts), note="") if bar else None
        start = 0
        while start < len(images):
            run = slice(start, min(start + rows, len(images)))
            alike = like_lengths(regions[run])
            # As they lie, where they are all alike; else back into their order after each block.
            parts: list[Tensor | slice] = [run] if len(alike) == 1 else [which + start for which in alike]
            order = None if len(alike) == 1 else torch.cat(alike).argsort().to(device, non_blocking=True)
            pieces = move(images, parts, regions, device)
            if pieces is None and run.stop - run.start == 1:
                raise DiptychError(f"memory ran out on {device} for what is kept of one picture")
            if pieces is None:
                rows = (run.stop - run.start) // 2
                continue
            for i, group in enumerate(groups):
                part = moved[i] if moved is not None else part_of(texts, group, int(words[group].max()))
                scores = torch.cat([score_matrix(matcher, piece, part, budget, dtype) for piece in pieces])
                yield Block(run, group, columns[i], scores if order is None else scores[order])
                if bar is not None and task is not None:
                    bar.advance(task, scores.numel())
            start = run.stop


def score_all(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> Tensor:
    """The whole matrix (n, m), float32 on the CPU; computed as `score_blocks` does.

    >>> score_all(matcher, images, texts).shape
    torch.Size([3, 3])
    """
    scores = score_all_near(matcher, images, texts, memory=memory, dtype=dtype, progress=progress)
    if scores is not None:
        return scores.cpu()
    scores = torch.empty(len(images), len(texts))
    for block in score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress):
        scores[block.images, block.texts] = block.scores.cpu()
    return scores


def score_all_near(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> Tensor | None:
    """The whole matrix (n, m), float32 on the matcher's device; None where it would take too much of its memory.

    >>> score_all_near(matcher, images, texts).device == matcher.device
    True
    """
    if matcher.device.type != "cpu" and not MemoryBudget(matcher.device, memory).holds_matrix(len(images), len(texts)):
        return None
    scores = torch.empty(len(images), len(texts), device=matcher.device)
    for block in score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress):
        scores[block.images, block.columns] = block.scores
    return scores
