"""The best k of each query, without the whole matrix."""

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.fused import has_kernels
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

    >>> scores, positions = top_k(matcher, images, texts, 2, query="texts")
    >>> positions.shape
    torch.Size([3, 2])
    """
    check_query(query)
    pictures, sentences = (k, None) if query == "texts" else (None, k)
    return _best(matcher, images, texts, pictures, sentences, memory, dtype, progress)[query]


def top_k_both(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    pictures: int,
    sentences: int,
    *,
    memory: int | None = None,
    dtype: torch.dtype | None = None,
    progress: str | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The best pictures of each sentence and the best sentences of each picture, from one pass over all pairs.

    pictures, sentences: how many of them; each of the two results is what `top_k` gives for it

    >>> for_texts, for_images = top_k_both(matcher, images, texts, pictures=2, sentences=1)
    >>> for_texts[1].shape, for_images[1].shape
    (torch.Size([3, 2]), torch.Size([3, 1]))
    """
    both = _best(matcher, images, texts, pictures, sentences, memory, dtype, progress)
    return both["texts"], both["images"]


def _best(
    matcher: Matcher,
    images: Kept,
    texts: Kept,
    pictures: int | None,
    sentences: int | None,
    memory: int | None,
    dtype: torch.dtype | None,
    progress: str | None,
) -> dict[Query, tuple[Tensor, Tensor]]:
    """One pass; what is None is not looked for."""
    wanted: dict[Query, tuple[int, int]] = {}
    if pictures is not None:
        wanted["texts"] = len(texts), _at_most(pictures, len(images))
    if sentences is not None:
        wanted["images"] = len(images), _at_most(sentences, len(texts))
    blocks = score_blocks(matcher, images, texts, memory=memory, dtype=dtype, progress=progress)
    device = matcher.device
    if has_kernels(device):
        from diptych.scoring.best_kernel import MOST, BestOnGPU

        if max(k for _, k in wanted.values()) <= MOST:
            with torch.cuda.device(device):
                quick = BestOnGPU(wanted, device)
                for block in blocks:
                    quick.add(block)
                return quick.found()
    best = {query: _Best(queries, k, device) for query, (queries, k) in wanted.items()}
    for block in blocks:
        ordered = _ordered(block.scores)
        if "texts" in best:
            places = torch.arange(block.images.start, block.images.stop, device=ordered.device)
            best["texts"].add(block.columns, ordered.T, places)
        if "images" in best:
            best["images"].add(block.images, ordered, block.columns)
    return {query: held.found() for query, held in best.items()}


def _at_most(k: int, items: int) -> int:
    if k < 1:
        raise DiptychError(f"k: expected at least 1, got {k}")
    return min(k, items)


class _Best:
    """The best k of each query so far, on the device where scores are."""

    def __init__(self, queries: int, k: int, device: torch.device) -> None:
        self.k = k
        self.keys = torch.full((queries, k), torch.iinfo(torch.int64).min, device=device)

    def add(self, queries: Tensor | slice, ordered: Tensor, items: Tensor) -> None:
        """Numbers in the scores' order (q, i), of queries and items at these positions.

        One whole number for score and position: greater for a higher score, at equal scores for an earlier position.
        """
        keys = (ordered.to(torch.int64) << 32) | (_LOW - items)
        few = keys.topk(min(self.k, keys.shape[1]), sorted=False).values
        self.keys[queries] = torch.cat([self.keys[queries], few], 1).topk(self.k).values

    def found(self) -> tuple[Tensor, Tensor]:
        """Scores and positions (q, k), in main memory."""
        keys = self.keys.cpu()
        ordered = (keys >> 32).to(torch.int32)
        return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32), _LOW - (keys & _LOW)


def _ordered(scores: Tensor) -> Tensor:
    """Whole numbers in the order of float32 scores: their bits, with those of negative numbers turned over."""
    bits = (scores + 0.0).contiguous().view(torch.int32)  # + 0.0: -0 and 0 are equal
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
