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
from diptych.matchers.bounded.calls import check_dtype, precision, score_matrix
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
    device = matcher.device
    budget = MemoryBudget(device, memory)
    if len(images) == 0 or len(texts) == 0:
        return
    regions, words = images.extents, texts.extents
    same = len(like_lengths(regions)) == 1
    rows, groups = _plan(matcher, images, texts, budget, dtype, same)
    whole = len(groups) == 1  # all sentences as they lie: nothing is picked out of them
    columns = [torch.arange(len(texts), device=device)] if whole else [group.to(device) for group in groups]
    places: list[Tensor | slice] = [slice(0, len(texts))] if whole else [*groups]
    fits = (whole and texts.device == device) or budget.holds(texts)
    moved = move(texts, places, words, device) if fits else None
    with progress_bar("pairs") if progress else nullcontext() as bar:
        task = bar.add_task(progress or "", total=len(images) * len(texts), note="") if bar else None
        start = 0
        while start < len(images):
            run = slice(start, min(start + rows, len(images)))
            alike = [] if same else like_lengths(regions[run])
            # As they lie, where they are all alike; else back into their order after each block.
            parts: list[Tensor | slice] = [run] if len(alike) < 2 else [which + start for which in alike]
            order = None if len(alike) < 2 else torch.cat(alike).argsort().to(device, non_blocking=True)
            pieces = move(images, parts, regions, device)
            if pieces is None and run.stop - run.start == 1:
                raise DiptychError(f"memory ran out on {device} for what is kept of one picture")
            if pieces is None:
                rows = (run.stop - run.start) // 2
                continue
            for i, group in enumerate(groups):
                part = moved[i] if moved is not None else part_of(texts, places[i], int(words[group].max()))
                found = [score_matrix(matcher, piece, part, budget, dtype) for piece in pieces]
                scores = found[0] if order is None else torch.cat(found)[order]
                yield Block(run, group, columns[i], scores)
                if bar is not None and task is not None:
                    bar.advance(task, scores.numel())
            start = run.stop


def _plan(
    matcher: Matcher, images: Kept, texts: Kept, budget: MemoryBudget, dtype: torch.dtype | None, same: bool
) -> tuple[int, list[Tensor]]:
    """How many pictures meet groups of sentences at a time, and the groups; same: whether pictures are like in size."""
    regions, words = images.extents, texts.extents
    most_regions = int(regions.max())
    with precision(budget.device, dtype):
        if same and images.device == texts.device == budget.device:
            alike = like_lengths(words)
            # All at once, of sides that lie there as they are: the device need not be asked what it has room for.
            floats = matcher.pair_floats(most_regions, int(words.max()))
            if len(alike) == 1 and budget.takes(len(images) * len(texts), floats):
                return len(images), alike
        usual = budget.pairs(matcher.pair_floats(most_regions, int(words.median())))
        rows = min(len(images), usual // min(len(texts), isqrt(usual)), budget.items(images))

        def most(longest: int) -> int:
            return min(budget.pairs(matcher.pair_floats(most_regions, longest)) // rows, budget.items(texts))

        return rows, like_lengths(words, most)


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
    device = matcher.device
    if device.type != "cpu" and not MemoryBudget(device, memory).holds_matrix(len(images), len(texts)):
        return None
    scores = None
    for block in score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress):
        if block.scores.shape == (len(images), len(texts)):
            scores = block.scores  # the only one; a group of all is in order
        else:
            scores = torch.empty(len(images), len(texts), device=device) if scores is None else scores
            scores[block.images, block.columns] = block.scores
    return torch.empty(len(images), len(texts), device=device) if scores is None else scores
