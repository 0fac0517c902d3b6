"""Embedding without a model: a vector from the content's digest, for tests of what surrounds it."""

import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.search.filling.new_entry import Failed, NewEntry, Outcome
from diptych.search.stores.store import Entry

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
            return Failed(entry.key, DataProblem(entry.key, str(error)), entry.stamp if entry.stamp.digest else None)
        self.keys.append(entry.key)
        return Entry(entry.key, entry.kind, vector(entry.stamp.digest), entry.stamp, entry.text, dict(entry.metadata))
