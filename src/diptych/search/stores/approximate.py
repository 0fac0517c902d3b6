"""An approximate index over a store's vectors: built by FAISS, its recall measured, never assumed."""

import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside
from diptych.search.stores.graph import Graph, GraphParts
from diptych.search.stores.inverted_file import InvertedFile, InvertedParts
from diptych.search.stores.settings import Approximation, VectorSettings
from diptych.search.stores.store import RECALL_FLOOR
from diptych.search.stores.vectors import BestRows, Vectors, aligned_similarities

MAGIC = b"diptych approximate 2"
MEASURED_QUERIES, MEASURED_TOP = 128, 10
# Sets need more: an entry may be near as a whole while none of its vectors is among the nearest. Small codes too.
DEPTHS = (100, 400, 1600, 6400)
# Where twice the work finds so little more, deeper is the way.
LITTLE_MORE = 0.002


@dataclass(frozen=True)
class ApproximateHeader:
    """What an approximate index covers and how well.

    last: the highest entry number it covers; later entries are searched exactly beside it
    count: entries it covers
    effort: inverted lists that a query looks into, or how broadly a graph is walked
    depth: candidates that each vector of a query brings, at least
    recall: the share of the exact ten best that it finds, measured on the store's vectors
    usable: whether that reached the floor; if not, searches stay exact
    memory: how much building it was allowed
    parts: where in the file what is
    """

    store: str
    kind: Approximation
    last: int
    count: int
    effort: int = 1
    depth: int = DEPTHS[0]
    recall: float = 0.0
    usable: bool = False
    memory: int = 0
    parts: dict[str, int] = field(default_factory=dict)


class Approximate:
    """Finds candidates among the elements of all entries; they are then scored exactly."""

    def __init__(self, header: ApproximateHeader, index: "InvertedFile | Graph | None") -> None:
        self.header = header
        self.index = index

    @classmethod
    def build(
        cls,
        path: Path,
        vectors: Vectors,
        store: str,
        settings: VectorSettings,
        queries: np.ndarray | None = None,
        floor: float = RECALL_FLOOR,
    ) -> "Approximate":
        """Build over all vectors, work as much as the recall needs, and write it to a file, whole or not at all."""
        last = int(vectors.ids[-1]) if len(vectors) else 0
        rows = np.flatnonzero(~vectors.gone)
        with written_aside(path) as aside:
            written = (Graph if settings.kind == "hnsw" else InvertedFile).write(aside, vectors, settings)
            header = ApproximateHeader(
                store, settings.kind, last, len(rows), memory=settings.memory, parts=asdict(written)
            )
            built = cls(header, _opened(aside, header))
            if queries is None:
                sample = np.random.default_rng(1).choice(rows, min(MEASURED_QUERIES, len(rows)), replace=False)
                queries = vectors.take(np.sort(sample))
            built._tune(vectors, queries[:MEASURED_QUERIES], floor)
            if not built.header.usable:
                os.truncate(aside, 0)
            built._seal(aside)
        return built

    def _tune(self, vectors: Vectors, queries: np.ndarray, floor: float) -> None:
        """Work more, then look for more candidates, until the recall reaches the floor."""
        assert self.index is not None
        exact = vectors.search(queries, MEASURED_TOP)
        for depth in DEPTHS:
            before = -1.0
            for effort in self.index.efforts:
                self.header = replace(self.header, effort=effort, depth=depth)
                recall = recall_of(self.search(vectors, queries, MEASURED_TOP), exact)
                self.header = replace(self.header, recall=recall, usable=recall >= floor)
                if self.header.usable:
                    return
                if depth != DEPTHS[-1] and recall > 0.5 and recall - before < LITTLE_MORE:
                    break
                before = recall

    def search(self, vectors: Vectors, queries: np.ndarray, top: int) -> BestRows:
        """The best of all entries: candidates by the nearest elements, and all later entries, scored exactly."""
        assert self.index is not None
        count, size, dim = queries.shape
        numbers = self.index.search(queries.reshape(-1, dim), max(self.header.depth, 4 * top), self.header.effort)
        ids = np.sort(np.where(numbers >= 0, numbers // size, -1).reshape(count, -1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        rows = np.minimum(np.searchsorted(vectors.ids, ids), len(vectors) - 1)
        missing = (ids < 0) | (vectors.ids[rows] != ids) | vectors.gone[rows]
        candidates = []
        at_once = max(1, vectors.work // (4 * rows.shape[1] * size * dim))
        for i in range(0, count, at_once):
            some = rows[i : i + at_once]
            entries = vectors.take(some.reshape(-1)).reshape(*some.shape, size, dim)
            scores = aligned_similarities(queries[i : i + at_once], entries, vectors.layout)
            scores[torch.from_numpy(missing[i : i + at_once])] = -torch.inf
            candidates.append(BestRows(scores, torch.from_numpy(some)))
        later = vectors.search(queries, top, first=int(np.searchsorted(vectors.ids, self.header.last, "right")))
        return BestRows.merged([BestRows.stacked(candidates, count), later], top, count)

    def check(self) -> None:
        """Read all of it; `DamagedApproximate` where it is not as it was written."""
        if self.index is not None:
            self.index.check()

    def _seal(self, path: Path) -> None:
        """Put the header behind what was written, with a checksum of all that is read when it is opened."""
        fields = asdict(self.header)
        size = path.stat().st_size
        fields["checksum"] = _checksum(path, size, fields)
        data = json.dumps(fields).encode()
        with path.open("ab") as file:
            file.write(data + struct.pack("<qI", len(data), zlib.crc32(data)) + MAGIC)

    @classmethod
    def load(cls, path: Path, store: str) -> "Approximate | None":
        """Map it; None where the file is missing, damaged or of another store.

        What is small, or could lead FAISS astray, is compared with its checksum here; codes are compared when they
        are first used (inverted files) or by `check` (graphs): a wrong one can only hide a result.
        """
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(-len(MAGIC) - 12, os.SEEK_END)
                (length, known), magic = struct.unpack("<qI", file.read(12)), file.read()
                if magic != MAGIC or not 0 < length < size:
                    return None
                file.seek(-len(MAGIC) - 12 - length, os.SEEK_END)
                data = file.read(length)
            if zlib.crc32(data) != known:
                return None
            fields = json.loads(data)
            checksum = fields.pop("checksum")
            header = ApproximateHeader(**fields)
            if header.store != store or _checksum(path, size - len(MAGIC) - 12 - length, fields) != checksum:
                return None
            return cls(header, _opened(path, header) if header.usable else None)
        except (OSError, ValueError, TypeError, KeyError, struct.error, RuntimeError, DiptychError):
            return None  # without FAISS too: searches are exact then


def _opened(path: Path, header: ApproximateHeader) -> "InvertedFile | Graph":
    if header.kind == "hnsw":
        return Graph(path, GraphParts(**header.parts))
    return InvertedFile(path, InvertedParts(**header.parts))


def recall_of(answer: BestRows, exact: BestRows) -> float:
    """The share of the exact results that were found; of equals any will do."""
    real = exact.scores > -torch.inf
    if not real.any():
        return 1.0
    # The worst exact result of each query; what is found and as good is one of them, or its equal.
    worst = torch.where(real, exact.scores, torch.inf).amin(1, keepdim=True)
    hits = torch.minimum((answer.scores >= worst - 1e-6).sum(1), real.sum(1))
    return float(hits.sum() / real.sum())


def _checksum(path: Path, size: int, header: dict[str, Any]) -> int:
    """Of the first `size` bytes of a file, without those that are compared later."""
    parts = header["parts"]
    start, end = (parts["start"], parts["end"]) if header["kind"] == "hnsw" else (0, parts["lists"])
    value = 0
    with path.open("rb") as file:
        for place, until in ((0, min(start, size)), (min(end, size), size)):
            file.seek(place)
            while place < until and (data := file.read(min(until - place, 1 << 22))):
                value = zlib.crc32(data, value)
                place += len(data)
    return value
