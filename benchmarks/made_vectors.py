"""Made-up vectors that lie as those of pictures do: few dimensions that matter, clusters of very unlike size, noise."""

from collections.abc import Iterator

import numpy as np

BATCH = 5000
CLUSTERS, LATENT, HIDDEN = 4000, 40, 192
# Of the length of a vector before it is scaled to 1: so much is noise in all directions.
NOISE = 0.25


class MadeVectors:
    """Unit vectors (n, d), the same for the same seed, whatever is asked for before.

    A point among 4,000 clusters in 40 dimensions, cluster k as likely as 1/k (a long tail: the first holds 11 %, the
    rarest 0.003 %) and each of a width of its own, goes through a fixed curved map into d dimensions; then comes
    noise in all directions, a quarter of the length. Held-out queries are points of another seed.
    """

    def __init__(self, dim: int) -> None:
        rng = np.random.default_rng(99)
        self.dim = dim
        self.centres = rng.standard_normal((CLUSTERS, LATENT), dtype=np.float32)
        self.widths = rng.uniform(0.15, 0.6, CLUSTERS).astype(np.float32)
        weights = 1 / np.arange(1, CLUSTERS + 1)
        self.until = np.cumsum(weights / weights.sum())
        self.bend = rng.standard_normal((LATENT, HIDDEN), dtype=np.float32) / np.float32(LATENT**0.5)
        self.spread = rng.standard_normal((HIDDEN, dim), dtype=np.float32) / np.float32(HIDDEN**0.5)

    def blocks(self, count: int, seed: int = 0, size: int = BATCH) -> Iterator[np.ndarray]:
        """At most `size` vectors at a time."""
        for start in range(0, count, size):
            yield self.some(min(size, count - start), [seed, start])

    def some(self, count: int, seed: list[int]) -> np.ndarray:
        """Vectors (count, d)."""
        rng = np.random.default_rng(seed)
        cluster = np.minimum(np.searchsorted(self.until, rng.random(count)), CLUSTERS - 1)
        points = rng.standard_normal((count, LATENT), dtype=np.float32) * self.widths[cluster, None]
        curved = np.tanh((self.centres[cluster] + points) @ self.bend) @ self.spread
        curved /= np.linalg.norm(curved, axis=1, keepdims=True)
        noise = rng.standard_normal((count, self.dim), dtype=np.float32)
        curved += NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
        return np.asarray(curved / np.linalg.norm(curved, axis=1, keepdims=True))
