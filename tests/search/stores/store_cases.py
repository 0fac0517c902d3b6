"""Entries for the tests of stores, and a slow search to compare with."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from diptych.search.stores.store import Entry, Kind, Layout, Stamp, Store, Value

DAY = 86_400_000_000_000


def unit(array: np.ndarray) -> np.ndarray:
    """Float32 vectors of length 1."""
    return (array / np.linalg.norm(array, axis=-1, keepdims=True)).astype(np.float32)


def random_vectors(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return unit(rng.standard_normal(shape))


def entry(
    key: str,
    vectors: np.ndarray,
    *,
    kind: Kind = "picture",
    changed: int = 0,
    size: int = 1,
    digest: str = "d",
    text: str = "",
    metadata: dict[str, Value] | None = None,
    locals: np.ndarray | None = None,
) -> Entry:
    return Entry(key, kind, vectors, Stamp(key, size, changed, digest), text, metadata or {}, locals)


def entries(count: int, layout: Layout, seed: int = 0) -> list[Entry]:
    """Pictures and sentences in some folders, with metadata."""
    rng = np.random.default_rng(seed)
    vectors = random_vectors(rng, count, layout.set_size, layout.dim)
    made = []
    for i in range(count):
        kind: Kind = "sentence" if i % 3 == 0 else "picture"
        key = f"album {i % 4}/set/{i:04d}.jpg" if kind == "picture" else f"notes/{i % 2}.txt#{i}"
        metadata: dict[str, Value] = {"year": 2000 + i % 5, "camera": ["Canon", "Nikon", "Leica M"][i % 3]}
        if i % 2:
            metadata["weight"] = i / 4
        made.append(
            entry(
                key,
                vectors[i],
                kind=kind,
                changed=1_600_000_000_000_000_000 + i * DAY,
                size=100 + i,
                digest=f"{i:08x}",
                text=f"sentence {i}" if kind == "sentence" else "",
                metadata=metadata,
            )
        )
    return made


def score(query: np.ndarray, vectors: np.ndarray, alpha: float) -> float:
    """Cosine, or smooth-Chamfer between two sets, written out: (K, d), (K, d) -> a number."""
    if len(query) == 1:
        return float(sum(float(a) * float(b) for a, b in zip(query[0], vectors[0], strict=True)))
    c = query.astype(np.float64) @ vectors.astype(np.float64).T
    first = sum(math.log(sum(math.exp(alpha * x) for x in row)) for row in c) / len(c)
    second = sum(math.log(sum(math.exp(alpha * x) for x in row)) for row in c.T) / len(c.T)
    return (first + second) / (2 * alpha)


def slow_search(
    all_entries: Sequence[Entry], query: np.ndarray, top: int, layout: Layout, fits: Callable[[Entry], bool]
) -> list[tuple[str, float]]:
    scored = [(e.key, score(query, e.vectors, layout.alpha)) for e in all_entries if fits(e)]
    return sorted(scored, key=lambda pair: -pair[1])[:top]


def assert_same_entry(found: Entry | None, wanted: Entry) -> None:
    assert found is not None
    assert (found.key, found.kind, found.stamp, found.text) == (wanted.key, wanted.kind, wanted.stamp, wanted.text)
    assert found.metadata == wanted.metadata
    assert found.vectors.dtype == np.float32
    assert np.array_equal(found.vectors, wanted.vectors)
    if wanted.locals is None:
        assert found.locals is None
    else:
        assert found.locals is not None
        assert found.locals.dtype == np.float16
        assert np.array_equal(found.locals, wanted.locals)


def keys_of(store: Store) -> list[str]:
    return [stamp.key for stamp in store.stamps()]
