"""Search on a Qdrant server, rescored here from the vectors themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diptych.search.stores.qdrant_connection import REQUEST_BYTES, QdrantConnection, wanted
from diptych.search.stores.qdrant_ids import point_ids
from diptych.search.stores.qdrant_rows import DENSE, SET, checked_vectors, dense_of, vector_name
from diptych.search.stores.server_index import IndexState
from diptych.search.stores.set_search import EntryVectors, Near, best_hits, scored, search_sets
from diptych.search.stores.store import Hit, Layout, Search
from diptych.search.stores.vectors import similarities, top_of

ENTRIES_AT_ONCE = 1_000
# A proof that takes longer lists is not looked for: reading all vectors costs no more.
LONGEST_LIST = 6_400
# Of int8 numbers so many times more candidates are compared again as they are.
OVERSAMPLING = 2.0


@dataclass(frozen=True)
class QdrantState(IndexState):
    """How to search; `depth`: of sets, how many entries their means name."""

    depth: int = 0


class QdrantSearcher:
    """Candidates from the server, exact scores from their vectors."""

    def __init__(self, server: QdrantConnection, layout: Layout) -> None:
        self._server, self._layout = server, layout

    def vectors(self) -> EntryVectors:
        """The vectors of entries by key, from now on."""
        return EntryVectors(self._layout, self._fetch)

    def exact(self, queries: np.ndarray, top: int, filters: Sequence[Any]) -> Search:
        """The `top` best of what fits any of the filters, for each query (q, K, d); all that fit are looked at."""
        hits: list[list[Hit]] = [[] for _ in queries]
        for where in filters:
            if self._layout.set_size == 1:
                more = self._nearest(queries, top, where, QdrantState())
            else:
                elements, longest = self._elements(where), max(LONGEST_LIST, 4 * top)
                more, proven = search_sets(queries, top, self._layout, self.vectors(), elements, longest, deeper=True)
                if not proven:
                    more = self.read_through(queries, top, where)
            hits = [best_hits(old + new, top) for old, new in zip(hits, more, strict=True)]
        return Search(hits, True)

    def read_through(self, queries: np.ndarray, top: int, where: Any = None) -> list[list[Hit]]:
        """The best of what fits, for each query (q, K, d), from a pass over all vectors."""
        best: list[list[Hit]] = [[] for _ in queries]
        name, vectors = self._server.name, [vector_name(self._layout)]
        for page in self._server.pages(name, where, ["key", "checksum"], ENTRIES_AT_ONCE, vectors):
            found = self._by_key(page)
            if not found:
                continue
            keys, entries = list(found), np.stack(list(found.values()))
            values, columns = top_of(similarities(queries, entries, self._layout), top)
            for number, (scores, places) in enumerate(zip(values.tolist(), columns.tolist(), strict=True)):
                more = [Hit(keys[place], score) for score, place in zip(scores, places, strict=True)]
                best[number] = best_hits(best[number] + more, top)
        return best

    def quick(self, queries: np.ndarray, top: int, state: QdrantState) -> Search:
        """The `top` best of all, as the graph finds them."""
        if self._layout.set_size == 1:
            return Search(self._nearest(queries, top, None, state), False, state.recall)
        return Search(self._nearest_sets(queries, top, state), False, state.recall)

    def _nearest(self, queries: np.ndarray, top: int, where: Any, state: QdrantState) -> list[list[Hit]]:
        """K = 1: the vectors come back with the results."""
        from qdrant_client import grpc as wire

        what = self._asked(["key", "checksum"], [DENSE]) | {"params": _params(state, top), "filter": where}
        asked = [wire.QueryPoints(query=_query(query), using=DENSE, limit=top, **what) for query in queries]
        return self._scored(queries, asked, top)

    def _nearest_sets(self, queries: np.ndarray, top: int, state: QdrantState) -> list[list[Hit]]:
        """K > 1: means name entries, of which the server finds the nearest sets (MAX_SIM); they are scored here."""
        from qdrant_client import grpc as wire

        depth = max(state.depth, 8 * top)
        what = self._asked(["key", "checksum"], [SET]) | {"using": SET, "limit": max(100, 4 * top)}
        asked = []
        for query, mean in zip(queries, dense_of(queries), strict=True):
            first = wire.PrefetchQuery(query=_query(mean[None]), using=DENSE, limit=depth, params=_params(state, depth))
            asked.append(wire.QueryPoints(prefetch=[first], query=_query(query), **what))
        return self._scored(queries, asked, top)

    def _scored(self, queries: np.ndarray, asked: Sequence[Any], top: int) -> list[list[Hit]]:
        """The answers to requests that bring their vectors, scored by what the layout compares."""
        hits = []
        size = 4 * self._layout.dim * self._layout.set_size * (asked[0].limit if asked else 1)
        at_once = max(1, REQUEST_BYTES // size)
        for i in range(0, len(asked), at_once):
            answers = self._server.query(self._server.name, asked[i : i + at_once])
            for query, points in zip(queries[i : i + at_once], answers, strict=True):
                found = self._by_key(points)
                entries = np.array(list(found.values()), np.float32).reshape(-1, *query.shape)
                hits.append(scored(query, list(found), entries, self._layout, top))
        return hits

    def _elements(self, where: Any) -> Any:
        """What is nearest by any of its elements to each of some vectors: MAX_SIM with one vector is just that."""
        from qdrant_client import grpc as wire

        what = self._asked(["key"], []) | {"using": SET, "params": _params(QdrantState(), 0), "filter": where}

        def ask(vectors: np.ndarray, depth: int) -> list[list[Near]]:
            asked = [wire.QueryPoints(query=_query(vector[None], many=True), limit=depth, **what) for vector in vectors]
            answers = self._server.query(self._server.name, asked)
            return [[(point.payload["key"].string_value, point.score) for point in points] for points in answers]

        return ask

    def _fetch(self, keys: Sequence[str]) -> Mapping[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for i in range(0, len(keys), ENTRIES_AT_ONCE):
            ids = point_ids(keys[i : i + ENTRIES_AT_ONCE])
            found |= self._by_key(
                self._server.get(self._server.name, ids, ["key", "checksum"], [vector_name(self._layout)])
            )
        return found

    def _by_key(self, points: Sequence[Any]) -> dict[str, np.ndarray]:
        """The vectors (K, d) of points; an error where they are not as they were written."""
        address = self._server.address
        return {point.payload["key"].string_value: checked_vectors(point, address) for point in points}

    def _asked(self, fields: Sequence[str], vectors: Sequence[str]) -> dict[str, Any]:
        return {"collection_name": self._server.name, **wanted(fields, vectors)}


def _query(vectors: np.ndarray, many: bool = False) -> Any:
    """A query with vectors (K, d); one alone is compared with the single vectors, unless `many`."""
    from qdrant_client import grpc as wire

    dense = [wire.DenseVector(data=vector.tolist()) for vector in vectors]
    if len(dense) > 1 or many:
        return wire.Query(nearest=wire.VectorInput(multi_dense=wire.MultiDenseVector(vectors=dense)))
    return wire.Query(nearest=wire.VectorInput(dense=dense[0]))


def _params(state: QdrantState, limit: int) -> Any:
    """All vectors as they are, or the graph, and then the best of its candidates as they are."""
    from qdrant_client import grpc as wire

    if not state.breadth:
        return wire.SearchParams(exact=True, quantization=wire.QuantizationSearchParams(ignore=True))
    again = wire.QuantizationSearchParams(rescore=True, oversampling=OVERSAMPLING)
    return wire.SearchParams(hnsw_ef=max(state.breadth, limit), quantization=again)
