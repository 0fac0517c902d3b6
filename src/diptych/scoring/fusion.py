"""One score from two stages."""

from typing import Literal

import numpy as np

Fusion = Literal["replace", "sum", "rrf"]
# Of reciprocal rank fusion (Cormack et al., 2009): ranks count as 1 / (60 + rank).
RRF = 60


def fuse(first: np.ndarray, second: np.ndarray, fusion: Fusion) -> np.ndarray:
    """One score (..., candidates) from both stages' scores of each query's candidates.

    replace: the second alone
    sum: both, each less its mean and over its deviation among the candidates, added
    rrf: 1 / (60 + rank in the first) + 1 / (60 + rank in the second)
    What the second could not score (-inf) comes after everything that it could, in the first's order; of a query where
    it could score nothing, the first's scores stand.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    known = ~np.isinf(second)
    if fusion == "replace":
        fused = second
    elif fusion == "sum":
        fused = _standard(first, known) + _standard(second, known)
    else:
        fused = 1 / (RRF + _ranks(first)) + 1 / (RRF + _ranks(second))
    if known.all():
        return fused
    lowest = np.min(fused, axis=-1, keepdims=True, where=known, initial=0)
    fused = np.where(known, fused, lowest - 1 - _ranks(first))
    return np.where(known.any(-1, keepdims=True), fused, first)


def _standard(scores: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Scores with mean 0 and deviation 1 among the known; 0 for the others."""
    count = np.maximum(known.sum(-1, keepdims=True), 1)
    held = np.where(known, scores, 0)
    centred = np.where(known, held - held.sum(-1, keepdims=True) / count, 0)
    spread = np.sqrt((centred**2).sum(-1, keepdims=True) / count)
    return centred / np.where(spread > 1e-12, spread, 1)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 1 along the last axis, the highest score first; of equal ones the earlier."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    ranks = np.empty(scores.shape, np.int64)
    np.put_along_axis(ranks, order, np.broadcast_to(np.arange(1, scores.shape[-1] + 1), scores.shape), axis=-1)
    return ranks
