"""Which index a Milvus server searches with: all vectors, or beyond the exact range an HNSW graph, measured."""

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.search.stores.milvus_connection import MilvusConnection
from diptych.search.stores.store import Layout
from diptych.search.stores.vectors import BestRows, similarities, top_of

# A new index is noticed after so many seconds.
KNOWN_FOR = 5.0
MEASURED_TOP = 10
# Building a graph takes the server a while.
BUILD_PATIENCE = 3600.0
STATE = "i\x01"


@dataclass(frozen=True)
class IndexState:
    """How to search: `breadth` is HNSW's ef, 0 for all vectors; `recall` as measured, None where searches are exact."""

    breadth: int = 0
    recall: float | None = None
    vectors: int = 0

    def parameters(self, limit: int) -> dict[str, int]:
        """Search parameters for the server."""
        return {"ef": max(self.breadth, limit)} if self.breadth else {}


class MilvusIndex:
    """The index of a store's collection.

    Inverted files are no choice: until a segment is sealed and indexed, the server searches an inverted file of its
    own making, in which structureless data measured a recall of 0.48 whatever was asked for. A flat index has no such
    stand-in and is exact at any moment.
    """

    def __init__(
        self, server: MilvusConnection, name: str, side: str, layout: Layout, exact_up_to: int, floor: float
    ) -> None:
        self._server = server
        self._name = name
        self._side = side
        self._layout = layout
        self._exact_up_to = exact_up_to
        self._floor = floor
        self._known: tuple[float, IndexState] | None = None

    def state(self) -> IndexState:
        """How to search now; another process may have changed it."""
        if self._known is None or time.monotonic() - self._known[0] > KNOWN_FOR:
            rows = self._server.query(self._side, f'id == "{STATE}"', ["data"])
            state = IndexState(**json.loads(rows[0]["data"])) if rows else IndexState()
            self._known = (time.monotonic(), state)
        return self._known[1]

    def forget(self) -> None:
        """The next search asks the server how to search."""
        self._known = None

    def prepare(self, entries: int, queries: np.ndarray) -> None:
        """Build and measure a graph where there are too many vectors to look at; drop it where there are not.

        Readers are answered with an error while the server changes its index.
        """
        vectors, state = entries * self._layout.set_size, self.state()
        if vectors <= self._exact_up_to:
            if state.breadth:
                self._switch(IndexState())
            return
        if state.vectors and abs(vectors - state.vectors) <= 0.2 * state.vectors:
            return
        exact = self._exact(queries)
        self._build("HNSW", {"M": 16, "efConstruction": 200})
        for breadth in (64, 128, 256, 512, 1024):
            recall = self._recall(queries, exact, IndexState(breadth))
            if recall >= self._floor:
                self._write(IndexState(breadth, recall, vectors))
                return
        self._switch(IndexState(vectors=vectors))

    def _switch(self, state: IndexState) -> None:
        self._write(state)
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

    def _write(self, state: IndexState) -> None:
        row = {"id": STATE, "data": json.dumps(asdict(state)), "blank": b"\0"}
        self._server.call("upsert", self._side, [row])
        self._known = (time.monotonic(), state)

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
            search_params={"metric_type": "IP", "params": state.parameters(MEASURED_TOP)},
            consistency_level="Strong",
        )
        hits = sum(
            sum(hit["distance"] >= scores[-1] - 1e-5 for hit in answer)
            for answer, scores in zip(answers, exact.tolist(), strict=True)
        )
        return float(min(1.0, hits / exact.numel()))
