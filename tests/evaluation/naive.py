"""Ranks, written as loops from the definition."""

from collections.abc import Iterator

import numpy as np
import torch

from diptych.evaluation.sources import Strip

Pairs = set[tuple[int, int]]


def ranks(scores: np.ndarray, pairs: Pairs, query: int, every: bool = False) -> list[tuple[int, int, int, int]]:
    """(query, place, optimistic, pessimistic) of every query; `query` 0: pictures ask, 1: sentences ask."""
    found = []
    for q in range(scores.shape[query]):
        row = scores[q] if query == 0 else scores[:, q]
        right = [a for a in range(len(row)) if ((q, a) if query == 0 else (a, q)) in pairs]
        wrong = [a for a in range(len(row)) if a not in right]
        best_first = sorted((row[a] for a in right), reverse=True)
        for place, level in enumerate(best_first if every else best_first[:1]):
            greater = sum(row[a] > level for a in wrong)
            equal = sum(row[a] == level for a in wrong)
            found.append((q, place, int(greater + place + 1), int(greater + equal + place + 1)))
    return found


def blocks(scores: np.ndarray, rng: np.random.Generator) -> Iterator[Strip]:
    """The matrix in runs of pictures of any length, each with its sentences in shuffled groups."""
    start = 0
    while start < len(scores):
        stop = min(len(scores), start + int(rng.integers(1, len(scores) + 1)))
        order = rng.permutation(scores.shape[1])
        for group in np.array_split(order, int(rng.integers(1, len(order) + 1))):
            yield Strip(slice(start, stop), torch.from_numpy(group), torch.from_numpy(scores[start:stop][:, group]))
        start = stop
