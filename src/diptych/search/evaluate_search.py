"""How good and how quick a search is: recall against an exact one, latency, and what re-ranking adds."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.search.asking.rerank import Rerank
from diptych.search.asking.results import MATCHES, RankedResults
from diptych.search.asking.unrelated_sentences import SENTENCES
from diptych.search.index import Index
from diptych.search.stores.store import Condition, Kind, Store
from diptych.search.stores.vectors import similarities

AT_ONCE = 2048
PICTURE = "picture"


@dataclass(frozen=True)
class QuerySet:
    """Sentences to search with, and of each the key of the picture that it belongs to, where that is known."""

    texts: list[str]
    right: list[str] | None = None


def own_queries(index: Index, most: int = 500) -> QuerySet:
    """The index's own sentences with the pictures that they belong to; without any, the background's sentences.

    Sentences of a tar that was indexed with --what both name their pictures.
    """
    texts: list[str] = []
    right: list[str] = []
    total = index.count([Condition("kind", "=", "sentence")])
    if total:
        step = max(1, total // most)
        keys = (stamp.key for stamp in index.store.stamps())
        seen = 0
        while (some := list(islice(keys, AT_ONCE))) and len(texts) < most:
            for entry in index.store.get(some, locals=False):
                if entry is not None and entry.kind == "sentence" and PICTURE in entry.metadata:
                    if seen % step == 0 and len(texts) < most:
                        texts.append(entry.text)
                        right.append(str(entry.metadata[PICTURE]))
                    seen += 1
    return QuerySet(texts, right) if texts else QuerySet(list(SENTENCES[:most]))


def evaluate_search(index: Index, asked: QuerySet, top: int = 10, rerank: Rerank | None = None) -> dict[str, Any]:
    """Figures of searching for pictures with sentences.

    recall: the share of an exact search's `top` results that this index's search finds
    latency: milliseconds of single queries, median and 95th percentile, and a query's share of a whole batch
    hits: r@1, r@5, r@10 of the right pictures, where they are known; confidence: how it is calibrated on them
    """
    if not asked.texts:
        raise DiptychError("expected at least one query to evaluate with")
    index.search(asked.texts[0], top)  # whatever is loaded or worked out once is not a query's latency
    answers, latency = _timed(index, asked.texts, top, None)
    figures: dict[str, Any] = {
        "entries": index.count(),
        "queries": len(asked.texts),
        "top": top,
        "exact": answers[0].exact,
        "recall": recall_against_exact(index, asked.texts, answers, top),
        "measured_recall": answers[0].recall,
        "latency_ms": latency,
    }
    if asked.right is not None:
        deep = index.search_batch(asked.texts, max(top, 10))
        figures["hits"] = hit_rates(deep, asked.right)
        figures["confidence"] = calibration(deep, asked.right)
    if rerank is not None:
        index.search(asked.texts[0], top, rerank=rerank)
        answers, latency = _timed(index, asked.texts, top, rerank)
        second: dict[str, Any] = {"model": rerank.model, "depth": rerank.depth, "fusion": rerank.fusion}
        second["latency_ms"] = latency
        second["stages_ms"] = _stages(answers)
        if asked.right is not None:
            second["hits"] = hit_rates(index.search_batch(asked.texts, max(top, 10), rerank=rerank), asked.right)
        figures["rerank"] = second
    return figures


def _timed(
    index: Index, texts: Sequence[str], top: int, rerank: Rerank | None
) -> tuple[list[RankedResults], dict[str, float]]:
    answers, seconds = [], []
    for text in texts:
        started = time.perf_counter()
        answers.append(index.search(text, top, rerank=rerank))
        seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    index.search_batch(texts, top, rerank=rerank)
    batch = (time.perf_counter() - started) / len(texts)
    return answers, {
        "median": 1000 * float(np.median(seconds)),
        "p95": 1000 * float(np.quantile(seconds, 0.95)),
        "in_batch": 1000 * batch,
    }


def _stages(answers: Sequence[RankedResults]) -> dict[str, float]:
    """The median milliseconds of each stage."""
    return {
        name: 1000 * float(np.median([answer.timings.get(name, 0.0) for answer in answers]))
        for name in answers[0].timings
    }


def recall_against_exact(index: Index, texts: Sequence[str], answers: Sequence[RankedResults], top: int) -> float:
    """The share of the exact `top` results that were found; a result as good as the last exact one counts."""
    queries = index.embedder.embed_texts(list(texts))
    exact = exact_scores(index.store, queries, top, "picture")
    reached = wanted = 0
    for answer, best in zip(answers, exact, strict=True):
        known = best[np.isfinite(best)]
        wanted += len(known)
        if len(known):
            good = sum(result.score >= known[-1] - 1e-5 for result in answer.results)
            reached += min(len(known), good)
    return reached / wanted if wanted else 1.0


def exact_scores(store: Store, queries: np.ndarray, top: int, kind: Kind) -> np.ndarray:
    """The `top` best scores (q, top) over all entries of a kind, by looking at every vector; -inf where too few."""
    best = np.full((len(queries), top), -np.inf, np.float32)
    for vectors in _all_vectors(store, kind):
        scores = similarities(queries, vectors, store.layout).numpy()
        both = np.concatenate([best, scores], 1)
        best = -np.sort(np.partition(-both, top - 1, 1)[:, :top], 1)
    return best


def _all_vectors(store: Store, kind: Kind) -> Iterator[np.ndarray]:
    keys = (stamp.key for stamp in store.stamps())
    while some := list(islice(keys, AT_ONCE)):
        vectors = [e.vectors for e in store.get(some, locals=False) if e is not None and e.kind == kind]
        if vectors:
            yield np.stack(vectors)


def hit_rates(answers: Sequence[RankedResults], right: Sequence[str]) -> dict[str, float]:
    """The share of queries whose right picture is among the first 1, 5 and 10."""
    ranks = [
        next((rank for rank, result in enumerate(answer.results) if key in (result.key, *result.duplicates)), 10**9)
        for answer, key in zip(answers, right, strict=True)
    ]
    return {f"r@{k}": float(np.mean([rank < k for rank in ranks])) for k in (1, 5, 10)}


def calibration(answers: Sequence[RankedResults], right: Sequence[str], bins: int = 5) -> dict[str, Any]:
    """What confidences are worth on queries whose right pictures are known.

    matched: the share of queries for which something is said to match
    matched_without: the same when each query's right picture is left out, as if it were not in the index
    bins: of the first results with confidences in a range, the share that are the right picture

    Other pictures than the right one may fit a sentence: the last two are bounds from above and from below.
    """
    first, best, others, correct = [], [], [], []
    for answer, key in zip(answers, right, strict=True):
        known = [(r.confidence, r.key == key) for r in answer.results if r.confidence is not None]
        if known:
            first.append(known[0][0])
            best.append(max(confidence for confidence, _ in known))
            correct.append(known[0][1])
            others.append(max((confidence for confidence, is_right in known if not is_right), default=0.0))
    if not first:
        return {}
    confidence, is_correct = np.array(first, np.float64), np.array(correct, bool)
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    table = [
        {
            "from": b / bins,
            "to": (b + 1) / bins,
            "queries": int((place == b).sum()),
            "right": float(is_correct[place == b].mean()) if (place == b).any() else None,
        }
        for b in range(bins)
    ]
    return {
        "matched": float((np.array(best) >= MATCHES).mean()),
        "matched_without": float((np.array(others) >= MATCHES).mean()),
        "bins": table,
    }


def evaluate_index(
    address: str | Path,
    queries: Path | None = None,
    *,
    top: int = 10,
    rerank: Rerank | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """The figures of the index at an address, with the sentences of a text file or its own."""
    with Index.open(address, device=device) as index:
        if not len(index):
            raise DiptychError("the index is empty; fill it with `diptych index FOLDER`", where=address)
        if queries is None:
            asked = own_queries(index)
        else:
            try:
                lines = queries.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise DiptychError(f"cannot be read as lines of sentences: {error}", where=queries) from None
            asked = QuerySet([line.strip() for line in lines if line.strip()])
        return evaluate_search(index, asked, top, rerank)


def describe(figures: dict[str, Any]) -> str:
    """The figures in lines for people."""
    kind = "exact" if figures["exact"] else f"approximate, measured recall {figures['measured_recall']:.4f}"
    lines = [
        f"{figures['entries']:,} entries, {figures['queries']} queries, {kind}",
        f"recall against an exact search, {figures['top']} results: {figures['recall']:.4f}",
        _latency("latency", figures["latency_ms"]),
    ]
    if "hits" in figures:
        lines.append(_hits("right pictures", figures["hits"]))
    confidence = figures.get("confidence")
    if confidence:
        lines.append(
            f"said to match: {confidence['matched']:.1%} of queries, "
            f"{confidence['matched_without']:.1%} without their pictures"
        )
    second = figures.get("rerank")
    if second:
        lines.append(f"re-ranked by {second['model']}, depth {second['depth']}, {second['fusion']}")
        lines.append(_latency("  latency", second["latency_ms"]))
        if "hits" in second:
            lines.append(_hits("  right pictures", second["hits"]))
    return "\n".join(lines)


def _latency(name: str, latency: dict[str, float]) -> str:
    times = f"median {latency['median']:.1f} ms, 95 % under {latency['p95']:.1f} ms"
    return f"{name}: {times}, {latency['in_batch']:.1f} ms a query in a batch"


def _hits(name: str, hits: dict[str, float]) -> str:
    return f"{name}: " + ", ".join(f"{figure} {100 * value:.1f}" for figure, value in hits.items())
