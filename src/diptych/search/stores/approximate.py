"""An approximate index over a store's vectors: a FAISS inverted file whose recall is measured, never assumed."""

import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside
from diptych.search.stores.store import RECALL_FLOOR
from diptych.search.stores.vectors import BestRows, Vectors, aligned_similarities

MAGIC = b"diptych approximate 1"
# Lists and vectors for training are bounded, so that building needs the same memory and time to train for any size.
MOST_LISTS, TRAINING_PER_LIST = 2048, 32
MEASURED_QUERIES, MEASURED_TOP = 128, 10
# Sets need more: an entry may be near as a whole while none of its vectors is among the nearest.
DEPTHS = (100, 400, 1600)
BLOCK = 16384


@dataclass(frozen=True)
class ApproximateHeader:
    """What an approximate index covers and how well.

    last: the highest entry number it covers; later entries are searched exactly beside it
    count: entries it covers
    probes: inverted lists that a query looks into
    depth: candidates that each vector of a query brings, at least
    recall: the share of the exact ten best that it finds, measured on the store's vectors
    usable: whether that reached the floor; if not, searches stay exact
    """

    store: str
    last: int
    count: int
    probes: int
    depth: int
    recall: float
    usable: bool


class Approximate:
    """Finds candidates among the elements of all entries; they are then scored exactly."""

    def __init__(self, header: ApproximateHeader, index: Any) -> None:
        self.header = header
        self.index = index

    @classmethod
    def build(
        cls, vectors: Vectors, store: str, queries: np.ndarray | None = None, floor: float = RECALL_FLOOR
    ) -> "Approximate":
        """Build over all vectors and look into as many lists as the recall needs."""
        faiss = _faiss()
        size, dim, count = vectors.layout.set_size, vectors.layout.dim, vectors.alive
        lists = max(1, min(MOST_LISTS, int(4 * (count * size) ** 0.5), count * size // TRAINING_PER_LIST))
        rng = np.random.default_rng(0)
        rows = np.flatnonzero(~vectors.gone)
        sample = np.sort(rng.choice(rows, min(len(rows), -(-lists * TRAINING_PER_LIST // size)), replace=False))
        index = faiss.index_factory(dim, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # else FAISS prints that it would like more
        index.train(vectors.take(sample).reshape(-1, dim))
        for start, block in vectors.blocks(BLOCK):
            kept = ~vectors.gone[start : start + len(block)]
            numbers = vectors.ids[start : start + len(block)][kept][:, None] * size + np.arange(size)
            index.add_with_ids(np.ascontiguousarray(block[kept]).reshape(-1, dim), numbers.reshape(-1))
        last = int(vectors.ids[-1]) if len(vectors) else 0
        built = cls(ApproximateHeader(store, last, count, 1, DEPTHS[0], 0.0, False), index)
        if queries is None:
            queries = vectors.take(np.sort(rng.choice(rows, min(MEASURED_QUERIES, len(rows)), replace=False)))
        built._tune(vectors, queries[:MEASURED_QUERIES], floor)
        return built

    def _tune(self, vectors: Vectors, queries: np.ndarray, floor: float) -> None:
        """Look into more lists, then for more candidates, until the recall reaches the floor."""
        exact = vectors.search(queries, MEASURED_TOP)
        for depth in DEPTHS:
            probes = 1
            while probes == 1 or probes <= self.index.nlist // 2:
                self.header = replace(self.header, probes=probes, depth=depth)
                recall = recall_of(self.search(vectors, queries, MEASURED_TOP), exact)
                self.header = replace(self.header, recall=recall, usable=recall >= floor)
                if self.header.usable:
                    return
                probes *= 2

    def search(self, vectors: Vectors, queries: np.ndarray, top: int) -> BestRows:
        """The best of all entries: candidates by the nearest elements, and all later entries, scored exactly."""
        faiss, (count, size, dim) = _faiss(), queries.shape
        parameters = faiss.SearchParametersIVF(nprobe=self.header.probes)
        depth = max(self.header.depth, 4 * top)
        _, numbers = self.index.search(queries.reshape(-1, dim), depth, params=parameters)
        ids = np.sort(np.where(numbers >= 0, numbers // size, -1).reshape(count, -1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        rows = np.minimum(np.searchsorted(vectors.ids, ids), len(vectors) - 1)
        missing = (ids < 0) | (vectors.ids[rows] != ids) | vectors.gone[rows]
        candidates = []
        at_once = max(1, BLOCK // rows.shape[1])
        for i in range(0, count, at_once):
            some = rows[i : i + at_once]
            entries = vectors.take(some.reshape(-1)).reshape(*some.shape, size, dim)
            scores = aligned_similarities(queries[i : i + at_once], entries, vectors.layout)
            scores[torch.from_numpy(missing[i : i + at_once])] = -torch.inf
            candidates.append(BestRows(scores, torch.from_numpy(some)))
        later = vectors.search(queries, top, first=int(np.searchsorted(vectors.ids, self.header.last, "right")))
        return BestRows.merged([BestRows.stacked(candidates, count), later], top, count)

    def save(self, path: Path) -> None:
        """Write the index and its header into one file, whole or not at all."""
        with written_aside(path) as aside:
            if self.header.usable:
                _faiss().write_index(self.index, str(aside))
            else:
                aside.touch()
            header = json.dumps(asdict(self.header) | {"checksum": _checksum(aside)}).encode()
            with aside.open("ab") as file:
                file.write(header + struct.pack("<q", len(header)) + MAGIC)

    @classmethod
    def load(cls, path: Path, store: str) -> "Approximate | None":
        """Read it back, mapped where FAISS can; None where the file is missing, damaged or of another store."""
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(-len(MAGIC) - 8, os.SEEK_END)
                (length,), magic = struct.unpack("<q", file.read(8)), file.read()
                if magic != MAGIC or not 0 < length < size:
                    return None
                file.seek(-len(MAGIC) - 8 - length, os.SEEK_END)
                fields = json.loads(file.read(length))
            checksum = fields.pop("checksum")
            header = ApproximateHeader(**fields)
            if header.store != store or _checksum(path, size - len(MAGIC) - 8 - length) != checksum:
                return None
            faiss = _faiss()
            return cls(header, faiss.read_index(str(path), faiss.IO_FLAG_MMAP) if header.usable else None)
        except (OSError, ValueError, TypeError, KeyError, struct.error, RuntimeError, DiptychError):
            return None  # without FAISS too: searches are exact then


def recall_of(answer: BestRows, exact: BestRows) -> float:
    """The share of the exact results that were found; of equals any will do."""
    real = exact.scores > -torch.inf
    if not real.any():
        return 1.0
    # The worst exact result of each query; what is found and as good is one of them, or its equal.
    worst = torch.where(real, exact.scores, torch.inf).amin(1, keepdim=True)
    hits = torch.minimum((answer.scores >= worst - 1e-6).sum(1), real.sum(1))
    return float(hits.sum() / real.sum())


def _checksum(path: Path, size: int = -1) -> int:
    value, left = 0, size if size >= 0 else path.stat().st_size
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, 1 << 22))):
            value = zlib.crc32(data, value)
            left -= len(data)
    return value


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise DiptychError(
            "more than 200,000 vectors are searched through FAISS; install it with: pip install 'diptych[search]'"
        ) from None
    return faiss
