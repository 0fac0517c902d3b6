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
    texts: (t,) positions of the sentences, in any order
    scores: (pictures of the run, t) float32, on the CPU

    >>> block = next(score_blocks(matcher, images, texts))
    >>> block.images, block.scores.shape
    (slice(0, 3, None), torch.Size([3, 3]))
    """

    images: slice
    texts: Tensor
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
    memory: bytes that scoring may take there; without it, what is free
    dtype: bfloat16 or float16 compute large products so (autocast); float32 otherwise
    progress: what a progress bar says; without it there is none

    >>> sum(block.scores.numel() for block in score_blocks(matcher, images, texts))
    9
    """
    check_dtype(dtype)
    budget = MemoryBudget(matcher.device, memory)
    regions, words = images.lengths.cpu().clamp(min=1), texts.lengths.cpu().clamp(min=1)
    if len(images) == 0 or len(texts) == 0:
        return
    usual = budget.pairs(matcher.pair_floats(int(regions.max()), int(words.median())))
    rows = min(len(images), usual // min(len(texts), isqrt(usual)), budget.items(images))

    def most(longest: int) -> int:
        return min(budget.pairs(matcher.pair_floats(int(regions.max()), longest)) // rows, budget.items(texts))

    groups = like_lengths(words, most)
    moved = move(texts, groups, matcher.device) if budget.holds(texts) else None
    with progress_bar("pairs") if progress else nullcontext() as bar:
        task = bar.add_task(progress or "", total=len(images) * len(texts), note="") if bar else None
        start = 0
        while start < len(images):
            run = slice(start, min(start + rows, len(images)))
            alike = like_lengths(regions[run])
            pieces = move(images, [run] if len(alike) == 1 else [which + start for which in alike], matcher.device)
            if pieces is None and run.stop - run.start == 1:
                raise DiptychError(f"memory ran out on {matcher.device} for what is kept of one picture")
            if pieces is None:
                rows = (run.stop - run.start) // 2
                continue
            for i, group in enumerate(groups):
                part = moved[i] if moved is not None else part_of(texts, group)
                scores = torch.empty(run.stop - run.start, len(group))
                for which, piece in zip(alike, pieces, strict=True):
                    scores[which] = score_matrix(matcher, piece, part, budget, dtype)
                yield Block(run, group, scores)
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
    scores = torch.empty(len(images), len(texts))
    for block in score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress):
        scores[block.images, block.texts] = block.scores
    return scores
