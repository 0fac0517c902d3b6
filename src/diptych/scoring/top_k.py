"""The best k of each query, without the whole matrix."""

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring.blocks import score_blocks
from diptych.scoring.candidates import Query, check_query

_LOW = (1 << 32) - 1


def top_k(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    k: int,
    query: Query,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores and positions (q, k) of each query's best items, best first; of equal ones the earlier comes first.

    query: `texts` finds pictures for each sentence, `images` sentences for each picture; k is cut to what there is
    memory, dtype, progress: as in `score_blocks`
    """
    check_query(query)
    if k < 1:
        raise DiptychError(f"k: expected at least 1, got {k}")
    queries, items = (texts, images) if query == "texts" else (images, texts)
    k = min(k, len(items))
    best = torch.full((len(queries), k), torch.iinfo(torch.int64).min)
    for block in score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress):
        if query == "texts":
            keys = _keys(block.scores.T, torch.arange(block.images.start, block.images.stop))
            rows: Tensor | slice = block.texts
        else:
            keys = _keys(block.scores, block.texts)
            rows = block.images
        best[rows] = torch.cat([best[rows], keys.topk(min(k, keys.shape[1]), sorted=False).values], 1).topk(k).values
    return _scores(best), _LOW - (best & _LOW)


def _keys(scores: Tensor, positions: Tensor) -> Tensor:
    """One whole number for score and position: greater for a higher score, and at equal scores for an earlier one.

    A float32's bits, read as an integer, are in its order once the bits of negative numbers are turned over.
    """
    bits = (scores + 0.0).contiguous().view(torch.int32)  # + 0.0: -0 and 0 are equal
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(torch.int64) << 32) | (_LOW - positions)


def _scores(keys: Tensor) -> Tensor:
    ordered = (keys >> 32).to(torch.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)
