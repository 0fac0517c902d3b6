"""The two calls of a matcher that all scoring goes through. They halve themselves when memory runs out.

Scores stay on the matcher's device, and no value of theirs is looked at: on a GPU one call does not wait for another.

A faster kernel belongs behind these: in the matcher's own `score` and `score_pairs`, which nothing else here bypasses.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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


@contextmanager
def precision(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """How a matcher is asked: without gradient, and with large products in half precision where that is the type."""
    half = dtype is not None and dtype != torch.float32
    with torch.no_grad(), torch.autocast(device.type, dtype if half else None, enabled=half):
        yield


def score_matrix(
    matcher: "Matcher", images: Kept, texts: Kept, budget: MemoryBudget, dtype: torch.dtype | None
) -> Tensor:
    """Scores of all pairs (n, m), float32 on the matcher's device; cut in halves until each call fits the budget."""
    with _asked(matcher, budget.device, dtype):
        return _matrix(matcher, images, texts, budget)


def _matrix(matcher: "Matcher", images: Kept, texts: Kept, budget: MemoryBudget) -> Tensor:
    n, m = len(images), len(texts)
    taken = 4 * n * m * matcher.pair_floats(images.mask.shape[1], texts.mask.shape[1])
    if n * m == 1 or budget.allows(taken):
        scores = _attempt(
            lambda: matcher.score(_ready(images, budget.device), _ready(texts, budget.device)), budget, n * m == 1
        )
        if scores is not None:
            return scores
        budget.ran_out(taken)
    if n >= m:
        return torch.cat([_matrix(matcher, half, texts, budget) for half in (images[: n // 2], images[n // 2 :])])
    return torch.cat([_matrix(matcher, images, half, budget) for half in (texts[: m // 2], texts[m // 2 :])], 1)


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
    # Asked before half precision is: kernels, which hold less, are for all pairs.
    floats = matcher.pair_floats(*longest)

    def aligned(pictures: Tensor, sentences: Tensor) -> Tensor:
        n = len(pictures)
        taken = 4 * n * floats
        if n == 1 or budget.allows(taken):
            scores = _attempt(
                lambda: matcher.score_pairs(
                    _ready(part_of(images, pictures, longest[0]), budget.device),
                    _ready(part_of(texts, sentences, longest[1]), budget.device),
                ),
                budget,
                n == 1,
            )
            if scores is not None:
                return scores
            budget.ran_out(taken)
        halves = slice(0, n // 2), slice(n // 2, n)
        return torch.cat([aligned(pictures[half], sentences[half]) for half in halves])

    with _asked(matcher, budget.device, dtype):
        return aligned(pictures, sentences)


def _ready(kept: Kept, device: torch.device) -> Kept:
    # What is kept may be stored in half precision; the matcher's weights are float32.
    return kept.to(device, torch.float32)


def _attempt(call: Callable[[], Tensor], budget: MemoryBudget, last: bool) -> Tensor | None:
    """One call's scores, or none where memory ran out; with `last`, when nothing can be halved, that is an error."""
    try:
        return call().to(torch.float32).contiguous()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if last:
            raise DiptychError(f"memory ran out on {budget.device} for one picture and one sentence") from error
    return None


@contextmanager
def _asked(matcher: "Matcher", device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """In eval mode, on its own GPU. Not in inference mode: scores are the caller's, who may change them."""
    near = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with near, matcher.inference(), torch.inference_mode(mode=False), precision(device, dtype):
        yield
