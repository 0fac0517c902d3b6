"""Which index a Milvus server searches with: all vectors, or beyond the exact range an HNSW graph, measured."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.search.stores.milvus_connection import MilvusConnection
from diptych.search.stores.server_index import BREADTHS, BUILD_PATIENCE, MEASURED_TOP, IndexState, ServerIndex
from diptych.search.stores.store import Layout
from diptych.search.stores.vectors import BestRows, similarities, top_of

STATE = "i\x01"


def search_parameters(state: IndexState, limit: int) -> dict[str, Any]:
    """Search parameters for the server."""
    return {"metric_type": "IP", "params": {"ef": max(state.breadth, limit)} if state.breadth else {}}


class MilvusIndex(ServerIndex[IndexState]):
    """The index of a store's collection. Readers are answered with an error while the server changes it.

    Inverted files are no choice: until a segment is sealed and indexed, the server searches an inverted file of its
    own making, in which structureless data measured a recall of 0.48 whatever was asked for. A flat index has no such
    stand-in and is exact at any moment.
    """

    def __init__(
        self, server: MilvusConnection, name: str, side: str, layout: Layout, exact_up_to: int, floor: float
    ) -> None:
        super().__init__(IndexState(), layout.set_size, exact_up_to)
        self._server = server
        self._name = name
        self._side = side
        self._layout = layout
        self._floor = floor

    def _read(self) -> str | None:
        rows = self._server.query(self._side, f'id == "{STATE}"', ["data"])
        return str(rows[0]["data"]) if rows else None

    def _write(self, text: str) -> None:
        self._server.call("upsert", self._side, [{"id": STATE, "data": text, "blank": b"\0"}])

    def _built(self, queries: np.ndarray) -> IndexState | None:
        exact = self._exact(queries)
        self._build("HNSW", {"M": 16, "efConstruction": 200})
        for breadth in BREADTHS:
            state = IndexState(breadth)
            recall = self._recall(queries, exact, state)
            if recall >= self._floor:
                return replace(state, recall=recall)
        return None

    def _drop(self) -> None:
        self._build("FLAT", {})

    def _build(self, kind: str, parameters: dict[str, int]) -> None:
        server, name = self._server, self._name
        server.call("flush", name)
        server.call("release_collection", name)
        server.call("drop_index", name, "vector")
        index = server.client.prepare_index_params()
        index.add_index("vector", index_type=kind, metric_type="IP", index_name="vector", params=parameters)
        server.call("create_index", name, index)

        def done() -> bool:
            about: dict[str, Any] = server.call("describe_index", name, "vector")
            return int(about.get("pending_index_rows", 0)) == 0

        if not server.wait(done, BUILD_PATIENCE):
            raise DiptychError(
                f"{server.address}: the server did not build its index within {BUILD_PATIENCE:g} seconds"
            )
        server.call("load_collection", name)

    def _exact(self, queries: np.ndarray) -> torch.Tensor:
        """The scores of the ten nearest vectors of each query element, (q K, 10), over all vectors, page by page."""
        flat, best = queries.reshape(-1, 1, self._layout.dim), list[BestRows]()
        for page in self._server.pages(self._name, "", ["vector"], 4096):
            block = np.array([row["vector"] for row in page], np.float32).reshape(-1, 1, self._layout.dim)
            values, columns = top_of(similarities(flat, block, Layout(self._layout.dim)), MEASURED_TOP)
            best = [BestRows.merged([*best, BestRows(values, columns)], MEASURED_TOP, len(flat))]
        return best[0].scores

    def _recall(self, queries: np.ndarray, exact: torch.Tensor, state: IndexState) -> float:
        """The share of the exact nearest that the server finds; of equals any will do."""
        answers = self._server.call(
            "search",
            self._name,
            data=list(queries.reshape(-1, self._layout.dim)),
            anns_field="vector",
            limit=MEASURED_TOP,
            search_params=search_parameters(state, MEASURED_TOP),
            consistency_level="Strong",
        )
        hits = sum(
            sum(hit["distance"] >= scores[-1] - 1e-5 for hit in answer)
            for answer, scores in zip(answers, exact.tolist(), strict=True)
        )
        return float(min(1.0, hits / exact.numel()))
