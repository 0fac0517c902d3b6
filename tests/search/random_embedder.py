"""A model that knows nothing: sentences and pictures to random vectors."""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from diptych.search.models.embedder import Embedded, Embedder
from diptych.search.stores.store import Layout


class RandomEmbedder(Embedder):
    """Sentences to random vectors that depend on the sentence alone, unless another vector is planted for it."""

    def __init__(self, dim: int = 32, set_size: int = 1, planted: dict[str, np.ndarray] | None = None) -> None:
        self.name = f"random-{dim}-{set_size}"
        self.layout = Layout(dim, set_size)
        self.side = 8
        self.device = torch.device("cpu")
        self.planted = planted or {}

    def prepare(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((8, 8)))

    def embed_pixels(
        self, pixels: Sequence[np.ndarray], sizes: Sequence[tuple[int, int]], locals: bool = False
    ) -> Embedded:
        return Embedded(np.stack([self._vector(p.tobytes()) for p in pixels]), None)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.planted[t] if t in self.planted else self._vector(t.encode()) for t in texts])

    def hasten_pictures(self) -> None:
        pass

    def unlevelled(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def _vector(self, data: bytes) -> np.ndarray:
        seed = int.from_bytes(hashlib.blake2b(data, digest_size=4).digest())
        return random_units(1, self.layout.set_size, self.layout.dim, seed)[0]


def random_units(n: int, k: int, d: int, seed: int) -> np.ndarray:
    """Unit vectors (n, k, d)."""
    v = np.random.default_rng(seed).normal(size=(n, k, d)).astype(np.float32)
    return np.asarray(v / np.linalg.norm(v, axis=-1, keepdims=True))
