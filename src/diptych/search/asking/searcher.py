"""A query from its terms to its results: embed, retrieve, re-rank, weigh against the background."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diptych.common.errors import DiptychError
from diptych.scoring.fusion import fuse
from diptych.search.asking.confidence import BackgroundQueries, combined, weighted_scores
from diptych.search.asking.duplicates import group_near
from diptych.search.asking.options import Options
from diptych.search.asking.query import SearchQuery, Term
from diptych.search.asking.rerank import Rerank, Reranker
from diptych.search.asking.results import Clock, RankedResults, Result
from diptych.search.asking.sorting import Sort, sorted_results
from diptych.search.asking.translation import translated
from diptych.search.asking.written import merged, written_words
from diptych.search.models.embedder import Embedder, LocalsSource
from diptych.search.stores.store import TEXT_IN_PICTURES, WRITTEN, Condition, Entry, Kind, Store

# How many more candidates are retrieved where the store cannot give the final order itself.
DEEPER, FEWEST = 5, 100
# How many are looked at, at most, for enough that are not near duplicates of each other.
MOST_POOL = 20_000
# Whether an index has text of pictures is looked up again after so many seconds.
ASK_AGAIN = 5.0


@dataclass
class _Candidates:
    """What is known of one query's candidates, in step with each other."""

    entries: list[Entry]
    retrieval: np.ndarray
    rerank: np.ndarray | None = None
    score: np.ndarray | None = None

    @property
    def scores(self) -> np.ndarray:
        return self.retrieval if self.score is None else self.score

    def ordered(self) -> "_Candidates":
        """Best first; equal ones as they were."""
        return self.part(np.argsort(-self.scores, kind="stable"))

    def part(self, which: np.ndarray) -> "_Candidates":
        """Some of them."""
        return _Candidates(
            [self.entries[i] for i in which],
            self.retrieval[which],
            None if self.rerank is None else self.rerank[which],
            None if self.score is None else self.score[which],
        )

    def append(self, entries: list[Entry], retrieval: np.ndarray) -> None:
        """More of them, which no second stage has looked at."""
        self.entries = [*self.entries, *entries]
        self.retrieval = np.concatenate([self.retrieval, retrieval])
        if self.rerank is not None and self.score is not None:
            self.rerank = np.concatenate([self.rerank, np.full(len(entries), np.nan)])
            self.score = np.concatenate([self.score, retrieval])


class Searcher:
    """Searches one store; threads may share it."""

    def __init__(self, store: Store, embedder: Callable[[], Embedder], kept: Callable[[], LocalsSource | None]) -> None:
        self.store = store
        self.background = BackgroundQueries(store, embedder)
        self._embedder = embedder
        self._kept = kept
        self._mixed = False
        self._text: tuple[float, bool] | None = None
        self._lock = threading.Lock()
        self._rerankers: dict[str, Reranker] = {}

    def search(self, queries: Sequence[SearchQuery], options: Options) -> list[RankedResults]:
        """The answers to several queries, embedded, retrieved and re-ranked together."""
        if not queries:
            return []
        clock, asked = Clock(), queries
        if options.language is not None:
            with clock.stage("translate"):
                queries = translated(queries, options.language)
        with clock.stage("encode"):
            terms = self._embed(queries)
        pool = options.top
        if options.rerank is not None:
            pool = max(pool, options.rerank.depth)
        if options.group is not None:
            pool = max(DEEPER * pool, FEWEST)
        while True:
            with clock.stage("retrieve"):
                retrieved, exact, recall = self._retrieve(queries, terms, pool, options)
            # Behind the depth nothing is re-ranked, and behind the threshold nothing is shown: more would not help.
            done = options.group is None or options.rerank is not None or pool >= MOST_POOL
            done = done or all(len(c.entries) < pool or _below(c, options.threshold) for c in retrieved)
            if options.rerank is not None:
                with clock.stage("rerank"):
                    retrieved = self._rerank(queries, retrieved, options.rerank, options.kind)
            grouped = [self._grouped(c, options) for c in retrieved]
            if done or all(len(groups) >= options.top for groups in grouped):
                break
            pool *= 4
        written: list[set[str]] = [set() for _ in queries]
        if options.kind == "picture" and self._reads_text():
            with clock.stage("written"):
                for place, query in enumerate(asked):  # what is written may well be in the language of the query
                    written[place] = self._add_written(query, terms[place], retrieved[place], grouped[place], options)
        with clock.stage("confidence"):
            results = [
                self._results(query, own, candidates, groups, options, keys)
                for query, own, candidates, groups, keys in zip(
                    queries, terms, retrieved, grouped, written, strict=True
                )
            ]
        timings = clock.timings
        return [RankedResults(some, timings, exact, recall) for some in results]

    def reranker(self, name: str) -> Reranker:
        """A re-ranking model, loaded once."""
        with self._lock:
            if name not in self._rerankers:
                self._rerankers[name] = Reranker(name, self._embedder().device)
            return self._rerankers[name]

    def _embed(self, queries: Sequence[SearchQuery]) -> list[np.ndarray]:
        """Each query's terms as vectors, (terms, K, d)."""
        layout = self.store.layout
        texts = list(dict.fromkeys(t.value for q in queries for t in q.terms if isinstance(t.value, str)))
        pictures = [t.value for q in queries for t in q.terms if not isinstance(t.value, str | np.ndarray)]
        by_text: dict[str, np.ndarray] = {}
        if texts:
            by_text = dict(zip(texts, self._embedder().embed_texts(texts), strict=True))
        by_order = iter(self._embedder().embed_pictures(pictures) if pictures else ())

        def vectors(term: Term) -> np.ndarray:
            if isinstance(term.value, str):
                return by_text[term.value]
            if not isinstance(term.value, np.ndarray):
                return next(by_order)
            own = np.asarray(term.value, np.float32)
            own = own[None] if own.ndim == 1 else own
            if own.shape != (layout.set_size, layout.dim):
                raise DiptychError(f"query of shape {own.shape}; expected ({layout.set_size}, {layout.dim})")
            return own

        return [np.stack([vectors(term) for term in query.terms]) for query in queries]

    def _retrieve(
        self, queries: Sequence[SearchQuery], terms: Sequence[np.ndarray], pool: int, options: Options
    ) -> tuple[list[_Candidates], bool, float | None]:
        """The best of each query by the first stage."""
        plain = [len(query.terms) == 1 or self.store.set_size == 1 for query in queries]
        asked = [
            combined(own[None], query.weights)[0] if len(query.terms) > 1 else own[0]
            for query, own, simple in zip(queries, terms, plain, strict=True)
            if simple
        ]
        retrieved: list[_Candidates | None] = [None] * len(queries)
        exact, recall = True, None
        if asked:
            search = self._of_kind(np.stack(asked), pool, options)
            exact, recall = search[1], search[2]
            places = [place for place, simple in enumerate(plain) if simple]
            for place, candidates in zip(places, search[0], strict=True):
                retrieved[place] = candidates
        for place, (query, own) in enumerate(zip(queries, terms, strict=True)):
            if retrieved[place] is None:
                retrieved[place], whole = self._of_sets(query, own, pool, options)
                exact = exact and whole
        return [candidates for candidates in retrieved if candidates is not None], exact, recall

    def _of_kind(
        self, vectors: np.ndarray, pool: int, options: Options
    ) -> tuple[list[_Candidates], bool, float | None]:
        """Search for entries of one kind, without a filter on it while there is only one kind to be found."""
        locals_wanted = options.rerank is not None and self._kept() is not None
        while True:
            mixed = self._mixed
            where = [*options.where, Condition("kind", "=", options.kind)] if mixed else options.where
            search = self.store.search(vectors, pool, where)
            keys = list(dict.fromkeys(hit.key for hits in search.hits for hit in hits))
            entries = {e.key: e for e in self.store.get(keys, locals=locals_wanted) if e is not None}
            if mixed or all(entry.kind == options.kind for entry in entries.values()):
                break
            self._mixed = True
        retrieved = []
        for hits in search.hits:
            hits = [hit for hit in hits if hit.key in entries]
            retrieved.append(_Candidates([entries[h.key] for h in hits], np.array([h.score for h in hits], np.float64)))
        return retrieved, search.exact, search.recall

    def _of_sets(self, query: SearchQuery, terms: np.ndarray, pool: int, options: Options) -> tuple[_Candidates, bool]:
        """Several terms of K vectors each: the best of every term that is looked for, rescored by all of them."""
        positive = terms[query.weights > 0]
        nearest, _, _ = self._of_kind(positive, max(FEWEST, DEEPER * pool), options)
        entries = list({entry.key: entry for candidates in nearest for entry in candidates.entries}.values())
        if not entries:
            return _Candidates([], np.zeros(0)), True
        vectors = np.stack([entry.vectors for entry in entries])
        scores = weighted_scores(terms[None], query.weights, vectors, self.store.layout)[0].astype(np.float64)
        candidates = _Candidates(entries, scores).ordered()
        return candidates.part(np.arange(min(pool, len(entries)))), len(entries) == self.store.count()

    def _rerank(
        self, queries: Sequence[SearchQuery], retrieved: Sequence[_Candidates], rerank: Rerank, kind: Kind
    ) -> list[_Candidates]:
        # Beyond the depth nothing was looked at again, and nothing is given.
        near = [c.part(np.arange(min(len(c.entries), rerank.depth))) for c in retrieved]
        scores = self.reranker(rerank.model).scores(queries, [c.entries for c in near], kind, self._kept())
        for candidates, second in zip(near, scores, strict=True):
            candidates.rerank = second.astype(np.float64)
            candidates.score = fuse(candidates.retrieval, second, rerank.fusion)
        return [candidates.ordered() for candidates in near]

    def _grouped(self, candidates: _Candidates, options: Options) -> list[list[int]]:
        """Rows of the candidates, each with its near duplicates, best first."""
        rows = np.arange(len(candidates.entries))
        if options.threshold is not None:
            rows = rows[candidates.scores >= options.threshold]
        if options.group is None or not len(rows):
            return [[int(row)] for row in rows]
        vectors = np.stack([candidates.entries[row].vectors for row in rows])
        return [[int(rows[i]) for i in group] for group in group_near(vectors, options.group)]

    def _reads_text(self) -> bool:
        """Whether text was ever read in the pictures of this store; asked again now and then."""
        if self._text is None or time.monotonic() - self._text[0] > ASK_AGAIN:
            self._text = time.monotonic(), bool(self.store.properties.get(TEXT_IN_PICTURES))
        return self._text[1]

    def _add_written(
        self,
        query: SearchQuery,
        terms: np.ndarray,
        candidates: _Candidates,
        groups: list[list[int]],
        options: Options,
    ) -> set[str]:
        """Put pictures in which the query's words are written among the candidates and their groups; their keys."""
        keys = self.store.written(written_words(query), options.top, options.where)
        rows = {entry.key: row for row, entry in enumerate(candidates.entries)}
        entries = [e for e in self.store.get([k for k in keys if k not in rows], locals=False) if e is not None]
        if entries:
            vectors = np.stack([entry.vectors for entry in entries])
            scores = weighted_scores(terms[None], query.weights, vectors, self.store.layout)[0].astype(np.float64)
            rows |= {entry.key: row for row, entry in enumerate(entries, len(candidates.entries))}
            candidates.append(entries, scores)
        groups += [[rows[key]] for key in keys if key in rows and not any(rows[key] in group for group in groups)]
        place_of = {row: place for place, group in enumerate(groups) for row in group}
        order = merged(range(len(groups)), list(dict.fromkeys(place_of[rows[key]] for key in keys if key in rows)))
        groups[:] = [groups[place] for place in order]
        return set(keys)

    def _results(
        self,
        query: SearchQuery,
        terms: np.ndarray,
        candidates: _Candidates,
        groups: list[list[int]],
        options: Options,
        written: set[str],
    ) -> list[Result]:
        groups = groups[: options.top]
        leaders = np.array([group[0] for group in groups], np.int64)
        chosen = candidates.part(leaders)
        confidences: list[float | None] = [None] * len(leaders)
        wanted = options.confidence or options.least_confidence is not None
        if wanted and len(leaders) and all(term.kind is not None for term in query.terms):
            vectors = np.stack([entry.vectors for entry in chosen.entries])
            confidences = self.background.confidences(query, terms, vectors, options.kind, options.where).tolist()
        results = []
        for row, (entry, confidence, group) in enumerate(zip(chosen.entries, confidences, groups, strict=True)):
            text = str(entry.metadata.get(WRITTEN, "")) if entry.key in written else ""
            if options.least_confidence is not None and (confidence or 0.0) < options.least_confidence and not text:
                continue
            result = Result(entry.key, entry.kind, float(chosen.scores[row]), confidence, entry.text)
            result = replace(result, changed=entry.stamp.changed, metadata=entry.metadata, written=text)
            if chosen.rerank is not None:
                second = float(chosen.rerank[row])
                result = replace(
                    result, retrieval=float(chosen.retrieval[row]), rerank=second if np.isfinite(second) else None
                )
            duplicates = tuple(candidates.entries[other].key for other in group[1:])
            results.append(replace(result, duplicates=duplicates))
        return sorted_results(results, options.sort) if isinstance(options.sort, Sort) else results


def _below(candidates: _Candidates, threshold: float | None) -> bool:
    """Whether the last candidate is too far away already."""
    return threshold is not None and bool(candidates.scores[-1] < threshold)
