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
    regions, words = images.extents, texts.extents
    place = matcher.device if budget.holds_matrix(len(images), len(texts)) else torch.device("cpu")
    scores = torch.empty(len(images), len(texts), device=place)
    for told in like_lengths(words):
        some = part_of(texts, told, int(words[told].max()))
        for seen in like_lengths(regions):
            part = part_of(images, seen, int(regions[seen].max()))
            found = score_matrix(matcher, part, some, budget, None).to(place)
            scores[seen.to(place).unsqueeze(1), told.to(place)] = found
    return scores.cpu()
