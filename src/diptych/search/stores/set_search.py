"""Search for sets on a server: entries by their nearest elements, until none that is left can be better."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from diptych.search.stores.store import Hit, Layout
from diptych.search.stores.vectors import similarities

# A result of a server: an entry's key, and the cosine of its element that is nearest.
Near = tuple[str, float]


class EntryVectors:
    """The vectors of entries by key, fetched once."""

    def __init__(self, layout: Layout, fetch: Callable[[Sequence[str]], Mapping[str, np.ndarray]]) -> None:
        """fetch: the vectors (K, d) of those of the keys that are there."""
        self._layout = layout
        self._fetch = fetch
        self._known: dict[str, np.ndarray] = {}

    def of(self, keys: Sequence[str]) -> np.ndarray:
        """(n, K, d); entries that are gone by now are left out."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if missing:
            self._known.update(self._fetch(missing))
        kept = [self._known[key] for key in keys if key in self._known]
        return np.stack(kept) if kept else np.zeros((0, self._layout.set_size, self._layout.dim), np.float32)

    def scored(self, query: np.ndarray, keys: Sequence[str], top: int) -> list[Hit]:
        """The best of these entries by what the layout compares, for one query (K, d)."""
        entries = self.of(keys)
        return scored(query, [key for key in keys if key in self._known], entries, self._layout, top)


def scored(query: np.ndarray, keys: Sequence[str], entries: np.ndarray, layout: Layout, top: int) -> list[Hit]:
    """The best of some entries (n, K, d) by what the layout compares, for one query (K, d)."""
    scores = similarities(query[None], entries, layout)[0].tolist()
    return best_hits([Hit(key, score) for key, score in zip(keys, scores, strict=True)], top)


def search_sets(
    queries: np.ndarray,
    top: int,
    layout: Layout,
    vectors: EntryVectors,
    ask: Callable[[np.ndarray, int], list[list[Near]]],
    most: int,
    deeper: bool,
) -> tuple[list[list[Hit]], bool]:
    """The best for each query (q, K, d), and whether they are proven to be.

    ask: what is nearest to each of some vectors (v, d), a list of at most so many for each
    most: the longest list that can be asked for
    deeper: whether longer lists are asked for until there is a proof
    """
    hits: list[list[Hit]] = [[] for _ in queries]
    open_queries, depth, size = list(range(len(queries))), min(most, max(100, 4 * top)), queries.shape[1]
    while open_queries:
        unproven = []
        at_once = max(1, 65_536 // (depth * size))
        for i in range(0, len(open_queries), at_once):
            some = open_queries[i : i + at_once]
            answers = ask(queries[some].reshape(-1, layout.dim), depth)
            for j, number in enumerate(some):
                lists = answers[j * size : (j + 1) * size]
                keys = list(dict.fromkeys(key for near in lists for key, _ in near))
                hits[number] = vectors.scored(queries[number], keys, top)
                if not _is_proven(layout, lists, depth, hits[number], top):
                    unproven.append(number)
        open_queries = unproven
        if depth == most or not deeper:
            break
        depth = min(most, 4 * depth)
    return hits, not open_queries


def best_hits(hits: Sequence[Hit], top: int) -> list[Hit]:
    """The best of some, equals in the order of their keys."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:top]


def _is_proven(layout: Layout, lists: Sequence[Sequence[Near]], depth: int, hits: Sequence[Hit], top: int) -> bool:
    """Whether no entry outside the lists can be better than the worst hit.

    An element of such an entry is no nearer to query element k than the last of its list.
    """
    if any(len(near) < depth for near in lists):
        return True  # one list holds every entry there is
    if len(hits) < top:
        return False
    last = torch.tensor([near[-1][1] for near in lists], dtype=torch.float64)
    return hits[-1].score >= layout.bound(last) + 1e-6
