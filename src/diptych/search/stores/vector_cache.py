"""A store's vectors in one flat file beside it, ready to be mapped into memory; it can be made again at any time.

A page with a JSON header, then the vectors (n, K, d) float32, then the entries' numbers (n,) int64.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from diptych.common.files import written_aside
from diptych.search.stores.store import Layout

MAGIC = "diptych vectors 1"
PAGE = 4096


@dataclass(frozen=True)
class CacheHeader:
    """What a cache holds: of which store, at which moment.

    count: n
    last: the highest number of an entry when it was written; later entries have higher ones
    deletions: how many deletions the store had seen by then
    """

    store: str
    dim: int
    set_size: int
    count: int
    last: int
    deletions: int


def write_cache(path: Path, header: CacheHeader, blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write a cache from blocks of (ids (r,), vectors (r, K, d)), whole or not at all."""
    checksum, ids = 0, list[np.ndarray]()
    with written_aside(path) as aside, aside.open("wb") as file:
        file.write(b"\0" * PAGE)
        for numbers, vectors in blocks:
            file.write(np.ascontiguousarray(vectors, np.float32).data)
            ids.append(numbers.astype(np.int64))
        for numbers in ids:
            file.write(numbers.data)
            checksum = zlib.crc32(numbers.data, checksum)
        file.seek(0)
        file.write(json.dumps({"magic": MAGIC, "checksum": checksum} | asdict(header)).encode().ljust(PAGE))


def read_cache(path: Path, store: str, layout: Layout) -> tuple[CacheHeader, np.ndarray, np.ndarray] | None:
    """Header, ids (n,) and mapped vectors (n, K, d); None where the file is missing, damaged or of another store."""
    try:
        with path.open("rb") as file:
            fields = json.loads(file.read(PAGE))
        magic, checksum = fields.pop("magic"), fields.pop("checksum")
        header = CacheHeader(**fields)
        size = 4 * layout.set_size * layout.dim
        if (
            magic != MAGIC
            or (header.store, header.dim, header.set_size) != (store, layout.dim, layout.set_size)
            or path.stat().st_size != PAGE + header.count * (size + 8)
        ):
            return None
        if not header.count:
            return header, np.zeros(0, np.int64), np.zeros((0, layout.set_size, layout.dim), np.float32)
        shape = (header.count, layout.set_size, layout.dim)
        vectors = np.memmap(path, np.float32, "r", PAGE, shape)
        ids = np.fromfile(path, np.int64, offset=PAGE + header.count * size)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return (header, ids, vectors) if zlib.crc32(ids.data) == checksum else None
