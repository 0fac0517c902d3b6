"""What a search store must know of a matcher that compares vectors: how many an item has, and how two sets compare."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:  # a store that is only counted or listed needs no torch
    from torch import Tensor

SetSimilarity = Literal["smooth-chamfer", "chamfer", "max"]


@dataclass(frozen=True)
class Layout:
    """Items of K unit vectors in d dimensions. Candidates are nearest by the cosine of some element.

    dim: d
    set_size: K, the vectors of one item; of single ones the score is the cosine
    alpha: the sharpness of smooth-Chamfer
    similarity: how two sets of K > 1 compare; `max` is that of the nearest two elements
    """

    dim: int
    set_size: int = 1
    alpha: float = 16.0
    similarity: SetSimilarity = "smooth-chamfer"

    def __post_init__(self) -> None:
        if self.dim < 1 or self.set_size < 1 or not self.alpha > 0:
            raise ValueError(f"a store needs dim >= 1, set_size >= 1 and alpha > 0, got {self}")
        if self.similarity not in get_args(SetSimilarity):
            raise ValueError(f"similarity: expected one of {get_args(SetSimilarity)}, got {self.similarity!r}")

    def compare(self, cosines: "Tensor") -> "Tensor":
        """Scores of pairs from the cosines of their elements: (..., K, K) -> (...)."""
        from diptych.matchers.set_similarity import chamfer, mil, smooth_chamfer

        if self.set_size == 1:
            return cosines[..., 0, 0]
        if self.similarity == "max":
            return mil(cosines)
        return chamfer(cosines) if self.similarity == "chamfer" else smooth_chamfer(cosines, self.alpha)

    def bound(self, nearest: "Tensor") -> float:
        """What no pair scores above in which every cosine of the query's element k is at most nearest[k]: (K,).

        Of smooth-Chamfer [mean_k t_k + log(K) / alpha + log(sum_k exp(alpha t_k)) / alpha] / 2.
        """
        if self.set_size == 1 or self.similarity == "max":
            return float(nearest.max())
        if self.similarity == "chamfer":
            return float((nearest.mean() + nearest.max()) / 2)
        spread = (math.log(len(nearest)) + float((self.alpha * nearest).logsumexp(0))) / self.alpha
        return (float(nearest.mean()) + spread) / 2
