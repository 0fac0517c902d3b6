"""Items of like length, so that little padding is computed."""

from collections.abc import Callable

from torch import Tensor

# A group of fewer items is filled up with shorter ones: so small a call costs more than the padding it would save.
WORTHWHILE = 16


def like_lengths(lengths: Tensor, most: Callable[[int], int] | None = None) -> list[Tensor]:
    """Split items (n,) into groups of like length: positions, each once, longest first.

    most: the largest group for a given longest length; without it, any size
    Within a group lengths differ by an eighth at most, unless it would have fewer than 16 items.
    """
    order = lengths.cpu().argsort(descending=True, stable=True)
    ordered = lengths.cpu()[order].tolist()
    groups = []
    start = 0
    while start < len(ordered):
        longest = ordered[start]
        shortest = longest - max(1, longest // 8)
        end = start + 1
        last = len(ordered) if most is None else min(len(ordered), start + max(1, most(longest)))
        while end < last and (ordered[end] >= shortest or end - start < WORTHWHILE):
            end += 1
        groups.append(order[start:end].sort().values)
        start = end
    return groups
