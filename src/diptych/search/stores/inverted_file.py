"""An inverted file on disk: FAISS searches it where it lies, and what a list holds is checked when it is first read.

The body of the file: for each list its codes and then its elements' numbers (int64); the lists' lengths (int64) and
checksums (int64); the trained index without any lists, as FAISS writes it.
"""

import mmap
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.files import reserve
from diptych.search.stores.faiss_library import DamagedApproximate, faiss_library
from diptych.search.stores.settings import VectorSettings
from diptych.search.stores.vectors import Vectors

# Lists and vectors for training are bounded, so that building needs the same memory and time to train for any size.
MOST_LISTS, TRAINING_PER_LIST, LEAST_PER_LIST = 2048, 32, 16
# An entry's number, row, list, and whether it is gone.
BYTES_AN_ENTRY = 21
# Numbers that one code of a byte stands for, in the kind that saves memory.
NUMBERS_A_CODE = 8
BLOCK_BYTES = 64 << 20


@dataclass(frozen=True)
class InvertedParts:
    """Where in the file what is: the lists up to `lists`, then 16 bytes for each of `count` lists, then `trained`."""

    lists: int
    count: int
    trained: int


class InvertedFile:
    """Finds the nearest elements in the lists nearest to a query."""

    def __init__(self, path: Path, parts: InvertedParts) -> None:
        """Map what `write` wrote; of the lists nothing is read."""
        faiss = faiss_library()
        with path.open("rb") as file:
            file.seek(parts.lists)
            self.sizes = np.frombuffer(file.read(8 * parts.count), np.int64)
            self.sums = np.frombuffer(file.read(8 * parts.count), np.int64)
            self.index = faiss.deserialize_index(np.frombuffer(file.read(parts.trained), np.uint8))
        self.coarse = self.index.quantizer
        self.width = self.index.code_size + 8
        self.starts = np.concatenate([[0], np.cumsum(self.sizes * self.width)])
        lists, places = faiss.OnDiskInvertedLists(), faiss.OnDiskOneListVector()
        for size, start in zip(self.sizes.tolist(), self.starts.tolist(), strict=False):
            place = faiss.OnDiskOneList()
            place.size, place.capacity, place.offset = size, size, start
            places.push_back(place)
        lists.lists, lists.nlist, lists.code_size = places, parts.count, self.index.code_size
        lists.filename, lists.read_only, lists.totsize = str(path), True, path.stat().st_size
        lists.do_mmap()
        self.index.replace_invlists(lists, True)
        lists.this.disown()  # it goes with the index
        self.index.ntotal = int(self.sizes.sum())
        self.bytes = faiss.rev_swig_ptr(lists.ptr, lists.totsize)
        self.right = self.sizes == 0

    @property
    def efforts(self) -> list[int]:
        """How many lists to look into, from little work to much."""
        return [1 << i for i in range(max(1, (len(self.sizes) // 2).bit_length()))]

    def search(self, queries: np.ndarray, depth: int, effort: int) -> np.ndarray:
        """The numbers of the nearest elements: (m, d) -> (m, depth), -1 where there are no more."""
        queries = padded(queries, self.index.d)
        near, lists = self.coarse.search(queries, effort)
        self._check(np.unique(lists))
        self.index.nprobe = effort
        return np.asarray(self.index.search_preassigned(queries, depth, lists, near)[1])

    def check(self) -> None:
        """Compare every list with its checksum."""
        self._check(np.arange(len(self.sizes)))

    def _check(self, lists: np.ndarray) -> None:
        for i in lists[~self.right[lists]].tolist():
            if zlib.crc32(self.bytes[self.starts[i] : self.starts[i + 1]]) != self.sums[i]:
                raise DamagedApproximate
            self.right[i] = True

    @classmethod
    def write(cls, path: Path, vectors: Vectors, settings: VectorSettings) -> InvertedParts:
        """Train, and write all elements into their lists, in bounded memory; the file is made anew."""
        faiss, size = faiss_library(), vectors.layout.set_size
        index = trained(vectors, settings)
        block = max(256, settings.share(16, BLOCK_BYTES) // (4 * size * vectors.layout.dim))
        rows = np.flatnonzero(~vectors.gone)
        chunks = [rows[i : i + block] for i in range(0, len(rows), block)]
        homes = np.empty(len(rows) * size, np.int32)
        for i, chunk in enumerate(chunks):
            flat = padded(vectors.take(chunk).reshape(-1, vectors.layout.dim), index.d)
            homes[i * block * size :][: len(flat)] = index.quantizer.search(flat, 1)[1][:, 0]
        sizes = np.bincount(homes, minlength=index.nlist)
        width = index.code_size + 8
        starts = np.concatenate([[0], np.cumsum(sizes * width)])
        filled = np.zeros(index.nlist, np.int64)
        rest = faiss.serialize_index(index).tobytes()
        with path.open("wb+") as file:
            reserve(file.fileno(), max(1, int(starts[-1])))
            with mmap.mmap(file.fileno(), 0) as mapped:
                for i, chunk in enumerate(chunks):
                    flat = padded(vectors.take(chunk).reshape(-1, vectors.layout.dim), index.d)
                    own = homes[i * block * size :][: len(flat)].astype(np.int64)
                    codes = np.empty((len(flat), index.code_size), np.uint8)
                    index.encode_vectors(
                        len(flat), faiss.swig_ptr(flat), faiss.swig_ptr(own), faiss.swig_ptr(codes), False
                    )
                    numbers = (vectors.ids[chunk][:, None] * size + np.arange(size)).reshape(-1)
                    order = np.argsort(own, kind="stable")
                    homes_here, firsts = np.unique(own[order], return_index=True)
                    for home, some in zip(homes_here.tolist(), np.split(order, firsts[1:]), strict=True):
                        start, done = int(starts[home]), int(filled[home])
                        _put(mapped, start + done * index.code_size, codes[some])
                        _put(mapped, start + int(sizes[home]) * index.code_size + 8 * done, numbers[some])
                        filled[home] += len(some)
                sums = [zlib.crc32(memoryview(mapped)[a:b]) for a, b in pairwise(starts.tolist())]
            file.seek(0, 2)
            lists = file.tell()
            file.write(sizes.astype(np.int64).tobytes() + np.array(sums, np.int64).tobytes() + rest)
        return InvertedParts(lists, index.nlist, len(rest))


def trained(vectors: Vectors, settings: VectorSettings) -> Any:
    """An index without elements, trained on a sample that fits into the memory."""
    faiss, size, dim = faiss_library(), vectors.layout.set_size, vectors.layout.dim
    count = vectors.alive * size
    # The sample, its differences from the lists' centres, and some room, beside what there is of every entry.
    fitting = max(LEAST_PER_LIST, (settings.memory - BYTES_AN_ENTRY * len(vectors)) // 3 // (4 * dim))
    lists = max(1, min(MOST_LISTS, int(4 * count**0.5), count // TRAINING_PER_LIST, fitting // LEAST_PER_LIST))
    rows = np.flatnonzero(~vectors.gone)
    wanted = min(len(rows), max(1, min(fitting, lists * TRAINING_PER_LIST) // size))
    sample = vectors.take(np.sort(np.random.default_rng(0).choice(rows, wanted, replace=False))).reshape(-1, dim)
    if settings.kind == "pq":
        codes = -(-dim // NUMBERS_A_CODE)
        sample = padded(sample, codes * NUMBERS_A_CODE)
        bits = min(8, max(1, len(sample).bit_length() - 1))
        # np: without the polysemous order of codes, which takes most of the training and is not used here.
        index = faiss.index_factory(sample.shape[1], f"IVF{lists},PQ{codes}x{bits}np", faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1
    else:
        index = faiss.index_factory(dim, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # else FAISS prints that it would like more
    index.train(sample)
    return index


def padded(vectors: np.ndarray, dim: int) -> np.ndarray:
    """Vectors (m, d) with zeros behind, as many as FAISS needs: (m, dim)."""
    more = dim - vectors.shape[1]
    return np.pad(vectors, ((0, 0), (0, more))) if more else np.ascontiguousarray(vectors)


def _put(mapped: mmap.mmap, start: int, array: np.ndarray) -> None:
    data = array.tobytes()
    mapped[start : start + len(data)] = data
