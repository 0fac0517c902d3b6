"""A graph of near neighbours on disk (HNSW), a byte a number, as FAISS writes and maps it."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.faiss_library import DamagedApproximate, faiss_library
from diptych.search.stores.settings import VectorSettings
from diptych.search.stores.vectors import Vectors

# Neighbours of an element; twice as many on the lowest level, where all elements are.
NEIGHBOURS = 32
# What an element takes beside its code: its neighbours, its number and where they are, with some room.
BYTES_BESIDE = 4 * (2 * NEIGHBOURS + 4) + 8 + 8 + 8 + 4
SAMPLE, BLOCK_BYTES = 50_000, 64 << 20
EFFORTS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class GraphParts:
    """Where in the file the codes lie, from `start` to `end`, and their checksum."""

    start: int
    end: int
    checksum: int


class Graph:
    """Finds the nearest elements by going from neighbour to nearer neighbour."""

    efforts = EFFORTS

    def __init__(self, path: Path, parts: GraphParts) -> None:
        """Map what `write` wrote; of the codes nothing is read."""
        faiss = faiss_library()
        self.index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        # A mapping of its own, of the very file that FAISS maps as long as nobody writes in between.
        self.codes = np.memmap(path, np.uint8, "r", parts.start, (parts.end - parts.start,))
        self.checksum = parts.checksum

    def search(self, queries: np.ndarray, depth: int, effort: int) -> np.ndarray:
        """The numbers of the nearest elements: (m, d) -> (m, depth), -1 where there are no more."""
        faiss = faiss_library()
        parameters = faiss.SearchParametersHNSW(efSearch=max(depth, effort))
        return np.asarray(self.index.search(np.ascontiguousarray(queries), depth, params=parameters)[1])

    def check(self) -> None:
        """Compare the codes with their checksum."""
        if zlib.crc32(self.codes.data) != self.checksum:
            raise DamagedApproximate

    @classmethod
    def write(cls, path: Path, vectors: Vectors, settings: VectorSettings) -> GraphParts:
        """Build the graph, in memory, and write it; the file is made anew."""
        faiss, size, dim = faiss_library(), vectors.layout.set_size, vectors.layout.dim
        needed = vectors.alive * size * (dim + BYTES_BESIDE)
        if needed > settings.memory:
            raise DiptychError(
                f"hnsw: a graph over {vectors.alive * size:,} vectors of {dim:,} takes {needed / 1e9:.1f} GB while "
                f"it is built, and {settings.memory / 1e9:.1f} GB are allowed; allow more with --memory, or take "
                "--approximate ivf or pq; all entries are kept, and searches go on as they were until then"
            )
        rows = np.flatnonzero(~vectors.gone)
        index = faiss.index_factory(dim, f"IDMap,HNSW{NEIGHBOURS},SQ8", faiss.METRIC_INNER_PRODUCT)
        sampled = min(len(rows), SAMPLE, max(1, settings.memory // 8 // (4 * size * dim)))
        sample = np.sort(np.random.default_rng(0).choice(rows, sampled, replace=False))
        index.train(vectors.take(sample).reshape(-1, dim))
        storage = faiss.downcast_index(faiss.downcast_index(index.index).storage)
        storage.codes.resize(len(rows) * size * storage.code_size)
        storage.codes.resize(0)  # the room stays: growing step by step would take it twice
        block = max(256, settings.share(16, BLOCK_BYTES) // (4 * size * dim))
        for start in range(0, len(rows), block):
            chunk = rows[start : start + block]
            numbers = (vectors.ids[chunk][:, None] * size + np.arange(size)).reshape(-1)
            index.add_with_ids(vectors.take(chunk).reshape(-1, dim), numbers)
        faiss.write_index(index, str(path))
        # Behind the codes there are the elements' numbers and how many they are.
        end = path.stat().st_size - 8 * (len(rows) * size + 1)
        start = end - len(rows) * size * storage.code_size
        codes = np.memmap(path, np.uint8, "r", start, (end - start,))
        checksum = zlib.crc32(faiss.rev_swig_ptr(storage.codes.data(), storage.codes.size()))
        if zlib.crc32(codes.data) != checksum:
            raise DiptychError(f"{path}: another way of writing graphs than that of FAISS 1.15")
        return GraphParts(start, end, checksum)
