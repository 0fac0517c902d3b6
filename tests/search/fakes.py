"""Embedding without a model: a vector from the content's digest, for tests of what surrounds it."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Problem
from diptych.search.embedder import Embedded, Embedder
from diptych.search.read_items import Failed, NewEntry, Outcome
from diptych.search.store import Entry, Layout

DIM = 4


def vector(digest: str) -> np.ndarray:
    seed = int(hashlib.blake2b(digest.partition("~")[0].encode(), digest_size=4).hexdigest(), 16)
    v = np.random.default_rng(seed).normal(size=(1, DIM)).astype(np.float32)
    return v / np.linalg.norm(v)


class FakeEmbed:
    """Counts what it embedded."""

    def __init__(self, batch: int = 3) -> None:
        self.batch = batch
        self.keys: list[str] = []

    def __call__(self, entries: Iterable[NewEntry]) -> Iterator[list[Outcome]]:
        some: list[Outcome] = []
        for entry in entries:
            some.append(self._one(entry))
            if len(some) == self.batch:
                yield some
                some = []
        yield some

    def _one(self, entry: NewEntry) -> Outcome:
        try:
            known = entry.known.partition("~")[0]
            entry = entry.with_digest()
            if known and known == entry.stamp.digest:
                return entry
            if entry.open is not None:
                entry.open()
        except DiptychError as error:
            return Failed(entry.key, Problem(entry.key, str(error)))
        self.keys.append(entry.key)
        return Entry(entry.key, entry.kind, vector(entry.stamp.digest), entry.stamp, entry.text, dict(entry.metadata))


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

    def _vector(self, data: bytes) -> np.ndarray:
        seed = int.from_bytes(hashlib.blake2b(data, digest_size=4).digest())
        return random_units(1, self.layout.set_size, self.layout.dim, seed)[0]


def random_units(n: int, k: int, d: int, seed: int) -> np.ndarray:
    """Unit vectors (n, k, d)."""
    v = np.random.default_rng(seed).normal(size=(n, k, d)).astype(np.float32)
    return np.asarray(v / np.linalg.norm(v, axis=-1, keepdims=True))
