"""How sure it is that a result is no chance match: its score beside those of unrelated sentences.

Every index holds something that fits any sentence best, so a score alone does not say whether anything fits at all.
Here a query is set beside a background of queries made alike from things unrelated to it: sentences about as many
different things as possible, and, where the query has pictures, pictures spread over the index.

    z(q, x) = (s(q, x) - mean) / std - 1.5 (std_x / std - 1)

is how far the query q stands out for the picture x: mean and std are those of the background's scores with the index
as a whole, and std_x is that of its scores with x alone. A picture whose scores differ much from sentence to sentence
comes first by chance more often, and must stand out further. Each background query has a best z in the index; those
follow the law of the largest of many, the Gumbel distribution, whose place and width are fitted to their lower three
quarters (some background sentences do match something). Where it was measured how far things that are not there stand
out with a model, the law becomes theirs (`calibration`). The confidence of x is

    P(best z of a query for something that is not there < z(q, x)) = exp(-exp(-(z - place) / width)):

the share of such queries for which nothing in the index would stand out as far as x does for q.

Of a model whose hubs are levelled, scores are here those without what was taken off: that something scores with much
anyway is no reason to doubt that it is there.
"""

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from diptych.common.files import written_aside
from diptych.common.user_folders import cache_folder
from diptych.search.asking.calibration import calibrated
from diptych.search.asking.gumbel import Gumbel
from diptych.search.asking.query import SearchQuery
from diptych.search.asking.unrelated_sentences import SENTENCES
from diptych.search.models.embedder import Embedder, unit
from diptych.search.stores.store import Condition, Kind, Layout, Store
from diptych.search.stores.vectors import similarities

# How many of a background query's results are looked at for the one that stands out most.
LOOKED_AT = 10
# Two vectors this close are the same picture.
IDENTICAL = 0.9999
# How much further a picture must stand out whose scores spread by as much again: chosen among 0, 0.5, 1, 1.5 and 2 on
# validation pictures of COCO and Flickr8k.
SPREAD = 1.5
# So many filters' laws are kept at a time.
MOST_LAWS = 64
PROPERTY = "background:"
FORMULA = 2  # of z: a law of another is not used


@dataclass(frozen=True)
class Chance:
    """What unrelated queries find in an index.

    law: of how far the best of each stands out; mean, spread: of their scores with entries all over the index
    """

    law: Gumbel
    mean: float
    spread: float

    def z(self, scores: np.ndarray, spreads: np.ndarray) -> np.ndarray:
        """How far scores stand out for entries with which the background's scores have these deviations."""
        return np.asarray((scores - self.mean) / self.spread - SPREAD * (spreads / self.spread - 1))


class BackgroundQueries:
    """Background queries of one model and index, made like any query; each kind's law is worked out once."""

    def __init__(self, store: Store, embedder: Callable[[], Embedder]) -> None:
        self.store = store
        self._embedder = embedder
        self._lock = threading.RLock()
        self._sentences: np.ndarray | None = None
        self._pictures: np.ndarray | None = None
        self._laws: dict[tuple[object, ...], Chance] = {}
        self._identity: str | None = None

    def confidences(
        self, query: SearchQuery, terms: np.ndarray, vectors: np.ndarray, kind: Kind, where: Sequence[Condition]
    ) -> np.ndarray:
        """Confidences (n,) of results with vectors (n, K, d) for a query's terms (terms, K, d)."""
        if not len(vectors):
            return np.zeros(0)
        own = self._embedder().unlevelled(terms)[None]
        scores = weighted_scores(own, query.weights, vectors, self.store.layout)[0].astype(np.float64)
        self._see_store()
        queries, weights = self.queries(query)
        _, spreads = self._moments(queries, weights, vectors)
        chance = self.chance(query, kind, where)
        law = calibrated(chance.law, self._embedder().name, query, kind)
        return law.below(chance.z(scores, spreads))

    def chance(self, query: SearchQuery, kind: Kind, where: Sequence[Condition] = ()) -> Chance:
        """What unrelated queries like this one find among the entries that fit; worked out once."""
        key = (kind, tuple(where), *((term.kind, term.weight) for term in query.terms))
        known = self._laws.get(key)
        if known is None:  # worked out without the lock: other threads have theirs already, and need not wait
            plain = len(query.terms) == 1 and query.terms[0].kind == "sentence"
            known = self._kept(kind) if plain and not where else None
            if known is None:
                queries, weights = self.queries(query)
                known = self._of_some(queries, weights, kind, where) if where else self._of_all(queries, weights, kind)
            with self._lock:
                if len(self._laws) >= MOST_LAWS:
                    self._laws.clear()
                self._laws[key] = known
        return known

    def queries(self, query: SearchQuery) -> tuple[np.ndarray, np.ndarray]:
        """Background queries like this one, (b, terms, K, d), and the weights of their terms.

        Each term is one of the background, no two of a query the same.
        """
        parts = []
        for position, term in enumerate(query.terms):
            pool = self.sentences() if term.kind == "sentence" else self.pictures()
            parts.append(np.roll(pool, 31 * position, axis=0))
        count = min(len(part) for part in parts)
        return np.stack([part[:count] for part in parts], 1), query.weights

    def sentences(self) -> np.ndarray:
        """The background sentences, (b, K, d)."""
        with self._lock:
            if self._sentences is None:
                self._sentences = self._embedder().unlevelled(embedded_sentences(self._embedder()))
            return self._sentences

    def pictures(self) -> np.ndarray:
        """Pictures spread over the index, (b, K, d)."""
        with self._lock:
            if self._pictures is None:
                self._pictures = self._embedder().unlevelled(self.store.background(len(SENTENCES)))
            return self._pictures

    def forget(self) -> None:
        """The index has changed: laws and pictures are worked out again when they are needed."""
        with self._lock:
            self._laws.clear()
            self._pictures = None

    def _see_store(self) -> None:
        """Forget what belongs to a store that another one took the place of."""
        identity = self.store.identity
        with self._lock:
            known, self._identity = self._identity, identity
        if known not in (None, identity):
            self.forget()

    def keep(self, kind: Kind) -> None:
        """Write the law of plain sentences into the index, so that readers need not work it out."""
        query = SearchQuery.of_sentence()
        queries, weights = self.queries(query)
        fields = {**asdict(self._of_all(queries, weights, kind)), "formula": FORMULA, "sentences": _list_digest()}
        self.store.set_properties({PROPERTY + kind: json.dumps(fields)})

    def _kept(self, kind: Kind) -> Chance | None:
        try:
            fields = json.loads(self.store.properties[PROPERTY + kind])
            if (fields.pop("sentences"), fields.pop("formula")) != (_list_digest(), FORMULA):
                return None
            return Chance(Gumbel(**fields.pop("law")), **fields)
        except (KeyError, ValueError, TypeError):
            return None

    def _of_all(self, queries: np.ndarray, weights: np.ndarray, kind: Kind) -> Chance:
        """Search for every background query, and fit the law to how far each one's best result stands out."""
        where = [Condition("kind", "=", kind)]
        count = self.store.count(where)
        if not count or len(queries) < 8:
            return Chance(Gumbel(0.0, 1.0, max(1, count)), 0.0, 1.0)
        if self.store.count() == count:
            where = []
        means, spreads = self._moments(queries, weights, self.store.background(len(SENTENCES), where))
        chance = Chance(Gumbel(0.0, 1.0, count), float(means.mean()), float(spreads.mean()))
        # A set of vectors has no weighted sum; its first and weightiest term says where to look.
        asked = combined(queries, weights) if queries.shape[2] == 1 else queries[:, int(weights.argmax())]
        hits = self.store.search(asked, LOOKED_AT + 1, where).hits
        keys = list(dict.fromkeys(hit.key for some in hits for hit in some))
        entries = [entry for entry in self.store.get(keys, locals=False) if entry is not None]
        rows = {entry.key: row for row, entry in enumerate(entries)}
        near = np.zeros((len(queries), len(entries)), bool)
        for query, some in enumerate(hits):
            near[query, [rows[hit.key] for hit in some if hit.key in rows]] = True
        if not entries:  # all deleted meanwhile
            return chance
        return self._fitted(chance, queries, weights, np.stack([entry.vectors for entry in entries]), near)

    def _of_some(self, queries: np.ndarray, weights: np.ndarray, kind: Kind, where: Sequence[Condition]) -> Chance:
        """What they find among entries that a filter leaves: of all of them where they are few, else by a part."""
        where = [*where, Condition("kind", "=", kind)]
        vectors = self.store.background(len(SENTENCES), where)
        if not len(vectors) or len(queries) < 8:
            return Chance(Gumbel(0.0, 1.0, max(1, len(vectors))), 0.0, 1.0)
        means, spreads = self._moments(queries, weights, vectors)
        chance = Chance(Gumbel(0.0, 1.0, len(vectors)), float(means.mean()), float(spreads.mean()))
        chance = self._fitted(chance, queries, weights, vectors, np.ones((len(queries), len(vectors)), bool))
        return replace(chance, law=chance.law.of(self.store.count(where)))

    def _fitted(
        self, chance: Chance, queries: np.ndarray, weights: np.ndarray, vectors: np.ndarray, near: np.ndarray
    ) -> Chance:
        """With the law of how far the best of each query's near (b, n) entries (n, K, d) stands out."""
        scores = weighted_scores(queries, weights, vectors, self.store.layout)
        z = chance.z(scores, _of_others(scores))
        near &= scores < IDENTICAL  # a background picture is in the index itself
        best = np.where(near, z, -np.inf).max(1)[near.any(1)]
        return replace(chance, law=Gumbel.fit(best, chance.law.count)) if len(best) >= 8 else chance

    def _moments(self, queries: np.ndarray, weights: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation (n,) of the background's scores with each of n entries."""
        scores = weighted_scores(queries, weights, vectors, self.store.layout)
        # A background picture that is the entry itself says nothing of chance.
        other = scores < IDENTICAL
        count = np.maximum(other.sum(0), 1)
        mean = (scores * other).sum(0) / count
        spread = np.sqrt((np.square(scores - mean) * other).sum(0) / count)
        return mean, np.maximum(spread, 1e-6)


def _of_others(scores: np.ndarray) -> np.ndarray:
    """Deviations (q, n) of the other queries' scores: a query that counted itself would stand out less."""
    exact, others = scores.astype(np.float64), max(1, len(scores) - 1)
    mean = (exact.sum(0) - exact) / others
    square = (np.square(exact).sum(0) - np.square(exact)) / others
    return np.asarray(np.sqrt(np.maximum(square - np.square(mean), 1e-12)))


def combined(terms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted sums of terms (q, terms, 1, d) as unit vectors (q, 1, d)."""
    return unit(np.einsum("qtkd,t->qkd", terms, weights))


def weighted_scores(terms: np.ndarray, weights: np.ndarray, vectors: np.ndarray, layout: Layout) -> np.ndarray:
    """Scores (q, n) of queries of several terms (q, terms, K, d) with entries (n, K, d).

    Of single vectors the cosine with the sum of the terms; of sets the weighted mean of the terms' similarities.
    """
    if terms.shape[2] == 1:
        return similarities(combined(terms, weights), vectors, layout).numpy()
    each = [similarities(np.ascontiguousarray(terms[:, t]), vectors, layout).numpy() for t in range(terms.shape[1])]
    return np.tensordot(weights, np.stack(each), 1) / np.abs(weights).sum()


def embedded_sentences(embedder: Embedder) -> np.ndarray:
    """The background sentences as vectors (b, K, d), kept in the user's cache folder."""
    name = hashlib.blake2b(f"{_list_digest()} {embedder.name} {embedder.probe(False)}".encode(), digest_size=12)
    path = cache_folder() / f"background-{name.hexdigest()}.npy"
    shape = (len(SENTENCES), embedder.layout.set_size, embedder.layout.dim)
    try:
        vectors = np.load(path)
        if vectors.shape == shape and vectors.dtype == np.float32:
            return np.asarray(vectors)
    except (OSError, ValueError, EOFError):
        pass
    vectors = embedder.embed_texts(SENTENCES)
    try:
        with written_aside(path) as aside, aside.open("wb") as file:
            np.save(file, vectors)
    except OSError:
        pass  # without a cache it only takes longer the next time
    return vectors


def _list_digest() -> str:
    return hashlib.blake2b("\n".join(SENTENCES).encode(), digest_size=8).hexdigest()
