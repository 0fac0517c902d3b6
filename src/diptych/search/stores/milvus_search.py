"""Search on a Milvus server, rescored here from the vectors themselves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from diptych.search.stores.conditions import quoted
from diptych.search.stores.milvus_connection import MOST_RESULTS, REQUEST_BYTES, MilvusConnection
from diptych.search.stores.milvus_index import IndexState
from diptych.search.stores.store import Hit, Layout, Search
from diptych.search.stores.vectors import similarities

ENTRIES_AT_ONCE = 1_000


class EntryVectors:
    """The vectors of entries by key, fetched once."""

    def __init__(self, server: MilvusConnection, name: str, layout: Layout) -> None:
        self._server = server
        self._name = name
        self._layout = layout
        self._known: dict[str, np.ndarray] = {}

    def of(self, keys: Sequence[str]) -> np.ndarray:
        """(n, K, d); entries that are gone by now are left out."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        for i in range(0, len(missing), ENTRIES_AT_ONCE):
            some = missing[i : i + ENTRIES_AT_ONCE]
            ids = [f"{key}\x01{k}" for key in some for k in range(self._layout.set_size)]
            rows = self._server.query(self._name, f"id in [{','.join(map(quoted, ids))}]", ["key", "element", "vector"])
            sets: dict[str, dict[int, list[float]]] = {}
            for row in rows:
                sets.setdefault(row["key"], {})[row["element"]] = row["vector"]
            for key, elements in sets.items():
                if len(elements) == self._layout.set_size:
                    self._known[key] = np.array([elements[k] for k in range(len(elements))], np.float32)
        kept = [self._known[key] for key in keys if key in self._known]
        return np.stack(kept) if kept else np.zeros((0, self._layout.set_size, self._layout.dim), np.float32)

    def known(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that were found."""
        return [key for key in keys if key in self._known]


class MilvusSearcher:
    """Candidates from the server, exact scores from their vectors."""

    def __init__(self, server: MilvusConnection, name: str, layout: Layout) -> None:
        self._server = server
        self._name = name
        self._layout = layout

    def search(self, queries: np.ndarray, top: int, expressions: Sequence[str], state: IndexState) -> Search:
        """The `top` best of what fits any of the expressions, for each query (q, K, d)."""
        hits: list[list[Hit]] = [[] for _ in queries]
        exact = state.recall is None
        for expression in expressions:
            if self._layout.set_size == 1:
                more = self._search_vectors(queries, top, expression, state)
            else:
                more, proven = self._search_sets(queries, top, expression, state)
                exact = exact and proven
            hits = [_best(old + new, top) for old, new in zip(hits, more, strict=True)]
        return Search(hits, exact, state.recall)

    def _search_vectors(self, queries: np.ndarray, top: int, expression: str, state: IndexState) -> list[list[Hit]]:
        """K = 1: the vectors come back with the results."""
        hits = []
        at_once = max(1, REQUEST_BYTES // (4 * self._layout.dim * top))
        for i in range(0, len(queries), at_once):
            some = queries[i : i + at_once]
            for query, rows in zip(some, self._ask(some[:, 0], top, expression, state, ["key", "vector"]), strict=True):
                vectors = np.array([row["entity"]["vector"] for row in rows], np.float32)
                scores = similarities(query[None], vectors.reshape(-1, 1, self._layout.dim), self._layout)[0].tolist()
                hits.append([Hit(row["entity"]["key"], score) for row, score in zip(rows, scores, strict=True)])
        return hits

    def _search_sets(
        self, queries: np.ndarray, top: int, expression: str, state: IndexState
    ) -> tuple[list[list[Hit]], bool]:
        """K > 1: the entries of the nearest elements, deeper and deeper until none that is left can be better."""
        vectors = EntryVectors(self._server, self._name, self._layout)
        hits: list[list[Hit]] = [[] for _ in queries]
        open_queries, depth, size = list(range(len(queries))), min(MOST_RESULTS, max(100, 4 * top)), queries.shape[1]
        while open_queries:
            unproven = []
            at_once = max(1, 4 * MOST_RESULTS // (depth * size))
            for i in range(0, len(open_queries), at_once):
                some = open_queries[i : i + at_once]
                answers = self._ask(queries[some].reshape(-1, self._layout.dim), depth, expression, state, ["key"])
                for j, number in enumerate(some):
                    lists = answers[j * size : (j + 1) * size]
                    keys = list(dict.fromkeys(row["entity"]["key"] for rows in lists for row in rows))
                    entries = vectors.of(keys)
                    scores = similarities(queries[number][None], entries, self._layout)[0].tolist()
                    rescored = [Hit(key, score) for key, score in zip(vectors.known(keys), scores, strict=True)]
                    hits[number] = _best(rescored, top)
                    if not self._is_proven(lists, depth, hits[number], top):
                        unproven.append(number)
            open_queries = unproven
            # What an approximate index leaves out cannot be proven anyway.
            if depth == MOST_RESULTS or state.recall is not None:
                break
            depth = min(MOST_RESULTS, 4 * depth)
        return hits, not open_queries

    def _is_proven(self, lists: Sequence[Sequence[Any]], depth: int, hits: Sequence[Hit], top: int) -> bool:
        """Whether no entry outside the lists can be better than the worst hit.

        An element of such an entry is no nearer to query element k than the last of its list.
        """
        if any(len(rows) < depth for rows in lists):
            return True  # one list holds every element there is
        if len(hits) < top:
            return False
        last = torch.tensor([rows[-1]["distance"] for rows in lists], dtype=torch.float64)
        return hits[-1].score >= self._layout.bound(last) + 1e-6

    def _ask(
        self, vectors: np.ndarray, limit: int, expression: str, state: IndexState, fields: list[str]
    ) -> list[list[Any]]:
        parameters = {"metric_type": "IP", "params": state.parameters(limit)}
        return list(
            self._server.call(
                "search",
                self._name,
                data=list(vectors),
                anns_field="vector",
                limit=limit,
                filter=expression,
                search_params=parameters,
                output_fields=fields,
                consistency_level="Strong",
            )
        )


def _best(hits: Sequence[Hit], top: int) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))[:top]
