"""Which index a Qdrant server searches with: all vectors, or a graph over int8 numbers, measured."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.stores.qdrant_connection import QdrantConnection
from diptych.search.stores.qdrant_notes import QdrantNotes
from diptych.search.stores.qdrant_rows import DENSE
from diptych.search.stores.qdrant_search import QdrantSearcher, QdrantState
from diptych.search.stores.server_index import BREADTHS, BUILD_PATIENCE, MEASURED_TOP, ServerIndex
from diptych.search.stores.store import Hit, Layout

STATE = "index"
# A part of the collection of so many kilobytes gets a graph; smaller ones are looked through.
GRAPH_FROM = 4_000
# Entries that the means of sets name, of which the sets themselves are then compared.
DEPTHS = (200, 800, 3200)
QUERIES_AT_ONCE = 16


class QdrantIndex(ServerIndex[QdrantState]):
    """The index of a store's collection. The server answers while it builds, and later entries are looked through."""

    def __init__(
        self,
        server: QdrantConnection,
        notes: QdrantNotes,
        layout: Layout,
        exact_up_to: int,
        floor: float,
        searcher: QdrantSearcher,
    ) -> None:
        super().__init__(QdrantState(), layout.set_size, exact_up_to)
        self._server, self._notes, self._layout, self._floor = server, notes, layout, floor
        self._searcher = searcher

    def _read(self) -> str | None:
        return self._notes.read().get(STATE)

    def _write(self, text: str) -> None:
        self._notes.write({STATE: text})

    def _built(self, queries: np.ndarray) -> QdrantState | None:
        from qdrant_client import models

        exact = self._exact(queries)
        # Links for filters are left out: a search with filters looks at all that fit.
        graph = models.HnswConfigDiff(m=16, ef_construct=128, payload_m=0)
        small = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
        self._change(graph, models.ScalarQuantization(scalar=small))
        for depth, breadth in product(DEPTHS if self._layout.set_size > 1 else (0,), BREADTHS):
            if breadth < depth and breadth != BREADTHS[-1]:
                continue  # the graph keeps as many candidates as are asked of it in any case
            state = QdrantState(breadth, depth=depth)
            recall = recall_of_hits(self._searcher.quick(queries, MEASURED_TOP, state).hits, exact)
            if recall >= self._floor:
                return replace(state, recall=recall)
        return None

    def _drop(self) -> None:
        from qdrant_client import models

        self._change(models.HnswConfigDiff(m=0), models.Disabled.DISABLED)

    def _change(self, graph: Any, quantization: Any) -> None:
        from qdrant_client import models

        vectors = {DENSE: models.VectorParamsDiff(hnsw_config=graph, quantization_config=quantization)}
        sizes = models.OptimizersConfigDiff(indexing_threshold=GRAPH_FROM)
        self._server.admin("update_collection", self._server.name, vectors_config=vectors, optimizers_config=sizes)
        settled = 0

        def done() -> bool:
            # Work that has not begun yet looks like work that is done: it must look so for a while.
            nonlocal settled
            info = self._server.info(self._server.name)
            settled = settled + 1 if info is None or info.status == models.CollectionStatus.GREEN else 0
            return settled >= 5

        if not self._server.wait(done, BUILD_PATIENCE):
            raise DiptychError(
                f"{self._server.address}: the server did not build its index within {BUILD_PATIENCE:g} seconds"
            )

    def _exact(self, queries: np.ndarray) -> list[list[Hit]]:
        """What an exact search finds: of sets in one pass, which no proof is needed for."""
        if self._layout.set_size > 1:
            return self._searcher.read_through(queries, MEASURED_TOP)
        parts = (queries[i : i + QUERIES_AT_ONCE] for i in range(0, len(queries), QUERIES_AT_ONCE))
        return [hits for some in parts for hits in self._searcher.exact(some, MEASURED_TOP, [None]).hits]


def recall_of_hits(found: Sequence[Sequence[Hit]], exact: Sequence[Sequence[Hit]]) -> float:
    """The share of the exact results that were found; of equals any will do."""
    hits = sum(
        min(len(best), sum(hit.score >= best[-1].score - 1e-6 for hit in some))
        for some, best in zip(found, exact, strict=True)
        if best
    )
    return hits / max(1, sum(map(len, exact)))
