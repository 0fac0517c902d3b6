"""What scoring costs once all is encoded: one sentence against all pictures, all against all, and operations a pair.

As in CAMP's supplement, Table 1 (times), and DivE's, B.1 (operations).
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from diptych.common.errors import DiptychError
from diptych.evaluation.published import PublishedTable
from diptych.evaluation.tables import Cell, FigureTable
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.scoring import score_all, score_candidates, top_k

QUERIES = 20
QUERY, OVERALL = "single query runtime", "overall test runtime"  # the published columns, ms and s
Sides = tuple[Kept, Kept]


@dataclass(frozen=True)
class Cost:
    """What scoring costs.

    query_seconds: one sentence compared with all pictures, the median over some sentences
    overall_seconds: all pictures compared with all sentences; of two stages, both ways
    pair_operations: multiplications and additions of a pair inside matrix products; None for two stages
    """

    query_seconds: float
    overall_seconds: float
    pair_operations: float | None = None

    def figures(self) -> dict[str, float]:
        """By name: `cost/query` and `cost/overall` in seconds, and `cost/operations` of a pair."""
        figures = {"cost/query": self.query_seconds, "cost/overall": self.overall_seconds}
        return figures if self.pair_operations is None else {**figures, "cost/operations": self.pair_operations}


def scoring_cost(matcher: Matcher, images: Kept, texts: Kept, queries: int = QUERIES) -> Cost:
    """The cost of one matcher on what it kept.

    >>> cost = scoring_cost(matcher, images, texts, queries=2)
    >>> cost.pair_operations == 2 * matcher.config.dim  # one product of two vectors
    True
    """
    single = _median_seconds(lambda row: score_all(matcher, images, texts[row : row + 1]), len(texts), queries)
    begun = time.perf_counter()
    score_all(matcher, images, texts)
    overall = time.perf_counter() - begun
    return Cost(single, overall, _operations(matcher, images, texts))


def reranked_cost(
    fast: Matcher, slow: Matcher, first: Sides, second: Sides, depth: float = 0.1, queries: int = QUERIES
) -> Cost:
    """The cost of two stages: `fast` ranks all of what it kept, `slow` rescores the best `depth` of each query."""
    if not 0 < depth <= 1:
        raise DiptychError(f"depth: expected a part above 0 and at most 1, got {depth}")

    def find_pictures(texts: slice) -> None:
        best = top_k(fast, first[0], first[1][texts], math.ceil(depth * len(first[0])), "texts")[1]
        score_candidates(slow, second[1][texts], second[0], best, "texts")

    single = _median_seconds(lambda row: find_pictures(slice(row, row + 1)), len(first[1]), queries)
    begun = time.perf_counter()
    find_pictures(slice(None))
    best = top_k(fast, *first, math.ceil(depth * len(first[1])), "images")[1]
    score_candidates(slow, *second, best, "images")
    return Cost(single, time.perf_counter() - begun)


def _median_seconds(ask: Callable[[int], object], sentences: int, queries: int) -> float:
    """Sentences from all over the collection, after one that is not counted."""
    rows = [position * sentences // queries for position in range(queries)]
    ask(rows[0])
    seconds = []
    for row in rows:
        begun = time.perf_counter()
        ask(row)
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def _operations(matcher: Matcher, images: Kept, texts: Kept) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        score_all(matcher, images, texts[:1])
    return counter.get_total_flops() / len(images)


def check_times(table: PublishedTable) -> None:
    """Refuse a published table without times."""
    if QUERY not in {column.name for column in table.columns}:
        raise DiptychError("has no times of a query; expected camp/supplement-table-1", where=table.id)


def cost_table(costs: Mapping[str, Cost], beside: PublishedTable | None, images: int, sentences: int) -> FigureTable:
    """A run a row, a paper's rows above."""
    rows: list[tuple[Cell, ...]] = []
    notes = []
    if beside is not None:
        check_times(beside)
        rows += [
            (f"paper: {row.label}", *(_printed(row.values[name]) for name in (QUERY, OVERALL)), None)
            for row in beside.rows
        ]
        notes.append(f"{beside.id}: {beside.caption} On another machine and other data: only ratios can be compared.")
    for name, cost in costs.items():
        operations = None if cost.pair_operations is None else f"{cost.pair_operations:,.0f}"
        rows.append((name, f"{1000 * cost.query_seconds:.2f}", f"{cost.overall_seconds:.3f}", operations))
    return FigureTable(
        columns=("method", "one query, ms", "all, s", "operations a pair"),
        rows=tuple(rows),
        title=f"cost of scoring: {images:,} pictures, {sentences:,} sentences, encoded before",
        notes=tuple(notes),
        records=[{"method": name, **cost.figures()} for name, cost in costs.items()],
    )


def _printed(value: float | None) -> Cell:
    return None if value is None else f"{value:g}"
