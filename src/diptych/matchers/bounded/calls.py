"""The two calls of a matcher that all scoring goes through. They halve themselves when memory runs out.

Scores stay on the matcher's device, and no value of theirs is looked at: on a GPU one call does not wait for another.

A faster kernel belongs behind these: in the matcher's own `score` and `score_pairs`, which nothing else here bypasses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.bounded.memory import MemoryBudget, is_out_of_memory, part_of
from diptych.matchers.kept import Kept

if TYPE_CHECKING:  # a matcher scores its own `similarity` through here
    from diptych.matchers.base import Matcher

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_dtype(dtype: torch.dtype | None) -> None:
    """An error for a type that scoring cannot run in."""
    if dtype is not None and dtype not in DTYPES:
        raise DiptychError(f"dtype: expected float32, bfloat16 or float16, got {dtype}")


def score_matrix(
    matcher: "Matcher", images: Kept, texts: Kept, budget: MemoryBudget, dtype: torch.dtype | None
) -> Tensor:
    """Scores of all pairs (n, m), float32 on the matcher's device; cut in halves until each call fits the budget."""
    n, m = len(images), len(texts)
    taken = 4 * n * m * matcher.pair_floats(images.mask.shape[1], texts.mask.shape[1])
    if n * m == 1 or taken <= budget.work:
        scores = _attempt(matcher, dtype, n * m == 1, lambda ready: matcher.score(ready(images), ready(texts)))
        if scores is not None:
            return scores
        budget.ran_out(taken)
    if n >= m:
        halves = images[: n // 2], images[n // 2 :]
        return torch.cat([score_matrix(matcher, half, texts, budget, dtype) for half in halves])
    parts = texts[: m // 2], texts[m // 2 :]
    return torch.cat([score_matrix(matcher, images, part, budget, dtype) for part in parts], 1)


def score_aligned(
    matcher: "Matcher",
    images: Kept,
    pictures: Tensor,
    texts: Kept,
    sentences: Tensor,
    longest: tuple[int, int],
    budget: MemoryBudget,
    dtype: torch.dtype | None,
) -> Tensor:
    """Scores (n,) of pairs given by positions (n,), float32 on the matcher's device; cut in halves until each fits.

    longest: regions and words that none of these pairs has more of
    """
    n, (regions, words) = len(pictures), longest
    taken = 4 * n * matcher.pair_floats(regions, words)
    if n == 1 or taken <= budget.work:
        scores = _attempt(
            matcher,
            dtype,
            n == 1,
            lambda ready: matcher.score_pairs(
                ready(part_of(images, pictures, regions)), ready(part_of(texts, sentences, words))
            ),
        )
        if scores is not None:
            return scores
        budget.ran_out(taken)
    halves = slice(0, n // 2), slice(n // 2, n)
    return torch.cat(
        [score_aligned(matcher, images, pictures[h], texts, sentences[h], longest, budget, dtype) for h in halves]
    )


def _attempt(
    matcher: "Matcher", dtype: torch.dtype | None, last: bool, call: Callable[[Callable[[Kept], Kept]], Tensor]
) -> Tensor | None:
    """One call's scores, or none where memory ran out; with `last`, when nothing can be halved, that is an error.

    The call gets a function that makes what is kept ready for the matcher.
    """

    def ready(kept: Kept) -> Kept:
        # What is kept may be stored in half precision; the matcher's weights are float32.
        return kept.to(matcher.device, torch.float32)

    try:
        with _no_gradient(matcher, dtype):
            return call(ready).to(torch.float32)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if last:
            raise DiptychError(f"memory ran out on {matcher.device} for one picture and one sentence") from error
    return None


@contextmanager
def _no_gradient(matcher: "Matcher", dtype: torch.dtype | None) -> Iterator[None]:
    half = dtype is not None and dtype != torch.float32
    with matcher.inference(), torch.autocast(matcher.device.type, dtype if half else None, enabled=half):
        yield
