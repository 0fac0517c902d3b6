"""Figures from ranks: recall, median and mean rank, and the sum of the six recalls.

R@K here is the field's: the share of queries with at least one right answer among the first K, in percent.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from diptych.evaluation.ranks import Ranks

CUTS = (1, 5, 10)
RECALLS = tuple(f"{direction}/r@{k}" for direction in ("i2t", "t2i") for k in CUTS)
Figures = dict[str, float]
Ranges = dict[str, tuple[float, float]]


def recall(ranks: np.ndarray, k: int) -> float:
    """Percent of ranks (queries,) that are k or better."""
    return 100 * float(np.mean(ranks <= k))


def rank_figures(i2t: np.ndarray, t2i: np.ndarray) -> Figures:
    """R@1, R@5, R@10, median and mean rank both ways, and RSUM, from ranks (pictures,) and (sentences,)."""
    figures: Figures = {}
    for direction, ranks in (("i2t", i2t), ("t2i", t2i)):
        for k in CUTS:
            figures[f"{direction}/r@{k}"] = recall(ranks, k)
        figures[f"{direction}/medr"] = float(np.median(ranks))
        figures[f"{direction}/meanr"] = float(np.mean(ranks))
    figures["rsum"] = sum(figures[key] for key in RECALLS)
    return figures


def mean_figures(folds: Sequence[Mapping[str, float]]) -> Figures:
    """The mean of each figure over folds."""
    return {key: sum(fold[key] for fold in folds) / len(folds) for key in folds[0]}


def with_ranges(
    folds: Sequence[tuple[Ranks, Ranks]], figures: Callable[[np.ndarray, np.ndarray], Figures] = rank_figures
) -> tuple[Figures, Ranges]:
    """Figures at the mean ranks, averaged over folds; and the range of each that ties leave open, lowest first."""

    def at(which: str) -> Figures:
        return mean_figures([figures(getattr(i2t, which), getattr(t2i, which)) for i2t, t2i in folds])

    middle = at("mean")
    if not any(ranks.tied for fold in folds for ranks in fold):
        return middle, {}
    ends = at("optimistic"), at("pessimistic")
    return middle, ranges_between(*ends)


def ranges_between(first: Mapping[str, float], second: Mapping[str, float]) -> Ranges:
    """Where two sets of figures differ: (lower, higher) by figure."""
    return {
        key: (min(first[key], second[key]), max(first[key], second[key])) for key in first if first[key] != second[key]
    }
