"""Search on a Milvus server, rescored here from the vectors themselves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from diptych.search.stores.conditions import quoted
from diptych.search.stores.milvus_connection import MOST_RESULTS, REQUEST_BYTES, MilvusConnection
from diptych.search.stores.milvus_index import search_parameters
from diptych.search.stores.server_index import IndexState
from diptych.search.stores.set_search import EntryVectors, Near, best_hits, search_sets
from diptych.search.stores.store import Hit, Layout, Search
from diptych.search.stores.vectors import similarities

ENTRIES_AT_ONCE = 1_000


class MilvusSearcher:
    """Candidates from the server, exact scores from their vectors."""

    def __init__(self, server: MilvusConnection, name: str, layout: Layout) -> None:
        self._server = server
        self._name = name
        self._layout = layout

    def vectors(self) -> EntryVectors:
        """The vectors of entries by key, from now on."""
        return EntryVectors(self._layout, self._fetch)

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
            hits = [best_hits(old + new, top) for old, new in zip(hits, more, strict=True)]
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
        """K > 1: the entries of the nearest elements; what an approximate index leaves out cannot be proven."""

        def ask(vectors: np.ndarray, depth: int) -> list[list[Near]]:
            answers = self._ask(vectors, depth, expression, state, ["key"])
            return [[(row["entity"]["key"], row["distance"]) for row in rows] for rows in answers]

        deeper = state.recall is None
        return search_sets(queries, top, self._layout, self.vectors(), ask, MOST_RESULTS, deeper)

    def _fetch(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        found, size = dict[str, np.ndarray](), self._layout.set_size
        for i in range(0, len(keys), ENTRIES_AT_ONCE):
            ids = [f"{key}\x01{k}" for key in keys[i : i + ENTRIES_AT_ONCE] for k in range(size)]
            rows = self._server.query(self._name, f"id in [{','.join(map(quoted, ids))}]", ["key", "element", "vector"])
            sets: dict[str, dict[int, list[float]]] = {}
            for row in rows:
                sets.setdefault(row["key"], {})[row["element"]] = row["vector"]
            for key, elements in sets.items():
                if len(elements) == size:
                    found[key] = np.array([elements[k] for k in range(size)], np.float32)
        return found

    def _ask(
        self, vectors: np.ndarray, limit: int, expression: str, state: IndexState, fields: list[str]
    ) -> list[list[Any]]:
        return list(
            self._server.call(
                "search",
                self._name,
                data=list(vectors),
                anns_field="vector",
                limit=limit,
                filter=expression,
                search_params=search_parameters(state, limit),
                output_fields=fields,
                consistency_level="Strong",
            )
        )
