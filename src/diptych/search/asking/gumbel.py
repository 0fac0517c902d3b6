"""The law of the largest of many."""

import math
from dataclasses import dataclass, replace

import numpy as np

_QUANTILES = np.linspace(0.1, 0.75, 27)


@dataclass(frozen=True)
class Gumbel:
    """The law of the best z of unrelated queries in an index of `count` entries."""

    place: float
    width: float
    count: int

    @classmethod
    def fit(cls, best: np.ndarray, count: int) -> "Gumbel":
        """From the best z of each background query, (b,), by a line through their lower three quarters."""
        # The quantile p of a Gumbel distribution is place - width log(-log p).
        x, y = -np.log(-np.log(_QUANTILES)), np.quantile(best, _QUANTILES)
        width = max(float(np.cov(x, y)[0, 1] / np.var(x, ddof=1)), 1e-3)
        return cls(float(y.mean() - width * x.mean()), width, count)

    def of(self, count: int) -> "Gumbel":
        """The same law for an index of another size: the best of n grows with log n."""
        if count < 1 or self.count < 1:
            return self
        return replace(self, place=self.place + self.width * math.log(count / self.count), count=count)

    def below(self, z: np.ndarray) -> np.ndarray:
        """The probability of less than z."""
        exponent = np.clip(-(np.asarray(z, np.float64) - self.place) / self.width, -700, 700)
        return np.exp(-np.exp(exponent))
