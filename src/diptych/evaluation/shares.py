"""Shares in percent with intervals that know that the questions on one picture are not independent of each other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DRAWS = 1000


@dataclass(frozen=True)
class Share:
    """A figure in percent, the ends of its 95 % interval, and how many questions and pictures it is of."""

    value: float
    low: float
    high: float
    count: int
    pictures: int

    def told(self) -> str:
        """The figure and half of its interval."""
        return f"{self.value:.1f} ± {(self.high - self.low) / 2:.1f}"


def share(hits: np.ndarray, pictures: np.ndarray, seed: int = 0) -> Share | None:
    """How many of the hits (questions,) bool are true, in percent; pictures: (questions,) whose question it is."""

    def figure(weights: np.ndarray) -> float:
        return float(weights @ hits / weights.sum())

    return clustered(figure, pictures, seed)


def clustered(figure: Callable[[np.ndarray], float], pictures: np.ndarray, seed: int = 0) -> Share | None:
    """A figure of weighted questions, from 0 to 1, with a bootstrap over pictures; none where there is no question.

    figure: of weights (questions,): how often each question's picture was drawn
    """
    if not len(pictures):
        return None
    units, place = np.unique(pictures, return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(DRAWS):
        weights = np.bincount(rng.integers(0, len(units), len(units)), minlength=len(units))[place]
        drawn.append(figure(weights.astype(np.float64)))
    # A draw that leaves a figure open (only true statements, say) tells nothing.
    low, high = np.nanquantile(drawn, (0.025, 0.975)) if not np.all(np.isnan(drawn)) else (np.nan, np.nan)
    value = figure(np.ones(len(pictures)))
    if np.isnan(value):
        return None
    return Share(100 * value, 100 * float(low), 100 * float(high), len(pictures), len(units))


def weighted_auc(scores: np.ndarray, true: np.ndarray, weights: np.ndarray) -> float:
    """How often a true one scores above a false one, drawn by their weights; a tie counts half; nan without either."""
    _, rank = np.unique(scores, return_inverse=True)
    right = np.bincount(rank, weights * true)
    wrong = np.bincount(rank, weights * ~true)
    below = np.cumsum(wrong) - wrong
    total = right.sum() * wrong.sum()
    return float(right @ (below + wrong / 2) / total) if total else float("nan")
