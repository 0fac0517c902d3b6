"""All pairs of two kept sides in bounded memory, as one matrix."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diptych.matchers.bounded.calls import score_matrix
from diptych.matchers.bounded.groups import like_lengths
from diptych.matchers.bounded.memory import MemoryBudget, part_of
from diptych.matchers.kept import Kept

if TYPE_CHECKING:
    from diptych.matchers.base import Matcher


def bounded_matrix(matcher: "Matcher", images: Kept, texts: Kept, memory: int | None = None) -> Tensor:
    """Scores of all pairs (n, m), float32 on the CPU, without gradient.

    Groups of like length meet, each cut until a call of the matcher takes no more than the budget's working memory.
    For many thousands of both, `diptych.scoring` besides moves sides once, shows progress and holds no whole matrix.
    memory: bytes that it may take on the matcher's device; without it, what is free
    """
    budget = MemoryBudget(matcher.device, memory)
    scores = torch.empty(len(images), len(texts))
    pictures, sentences = (like_lengths(side.lengths.clamp(min=1)) for side in (images, texts))
    for told in sentences:
        some = part_of(texts, told)
        for seen in pictures:
            scores[seen.unsqueeze(1), told] = score_matrix(matcher, part_of(images, seen), some, budget, None)
    return scores
