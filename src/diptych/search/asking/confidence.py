"""How sure it is that a result is no chance match: its score beside those of unrelated sentences.

Every index holds something that fits any sentence best, so a score alone does not say whether anything fits at all.
Here a query is set beside a background of queries made alike from things unrelated to it: sentences about as many
different things as possible, and, where the query has pictures, pictures spread over the index.

    z(q, x) = (s(q, x) - mean_b s(b, x)) / std_b s(b, x)

is how far the query q stands out among the background queries b for the picture x. Each background query has a best z
in the index; those follow the law of the largest of many, the Gumbel distribution, whose place and width are fitted to
their lower three quarters (some background sentences do match something). The confidence of x is

    P(best z of an unrelated query < z(q, x)) = exp(-exp(-(z - place) / width)):

the share of unrelated queries for which nothing in the index would stand out as far as x does for q.
"""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from diptych.common.files import written_aside
from diptych.common.user_folders import cache_folder
from diptych.search.asking.query import SearchQuery
from diptych.search.asking.unrelated_sentences import SENTENCES
from diptych.search.models.embedder import Embedder, unit
from diptych.search.stores.store import Condition, Kind, Layout, Store
from diptych.search.stores.vectors import similarities

# How many of a background query's results are looked at for the one that stands out most.
LOOKED_AT = 10
# Two vectors this close are the same picture.
IDENTICAL = 0.9999
PROPERTY = "background:"
_QUANTILES = np.linspace(0.1, 0.75, 27)


@dataclass(frozen=True)
class Gumbel:
    """The law of the best z of unrelated queries in an index of `count` entries."""

    place: float
    width: float
    count: int

    @classmethod
    def fit(cls, best: np.ndarray, count: int) -> "Gumbel":
        """From the best z of each background query, (b,), by a line through their lower three quarters."""
        # The quantile p of a Gumbel distribution is place - width log(-log p).
        x, y = -np.log(-np.log(_QUANTILES)), np.quantile(best, _QUANTILES)
        width = max(float(np.cov(x, y)[0, 1] / np.var(x, ddof=1)), 1e-3)
        return cls(float(y.mean() - width * x.mean()), width, count)

    def of(self, count: int) -> "Gumbel":
        """The same law for an index of another size: the best of n grows with log n."""
        if count < 1 or self.count < 1:
            return self
        return replace(self, place=self.place + self.width * math.log(count / self.count), count=count)

    def below(self, z: np.ndarray) -> np.ndarray:
        """The probability of less than z."""
        exponent = np.clip(-(np.asarray(z, np.float64) - self.place) / self.width, -700, 700)
        return np.exp(-np.exp(exponent))


class BackgroundQueries:
    """Background queries of one model and index, made like any query; each kind's law is worked out once."""

    def __init__(self, store: Store, embedder: Callable[[], Embedder]) -> None:
        self.store = store
        self._embedder = embedder
        self._lock = threading.RLock()
        self._sentences: np.ndarray | None = None
        self._pictures: np.ndarray | None = None
        self._laws: dict[tuple[object, ...], Gumbel] = {}
        self._identity: str | None = None

    def confidences(
        self, query: SearchQuery, vectors: np.ndarray, scores: np.ndarray, kind: Kind, where: Sequence[Condition]
    ) -> np.ndarray:
        """Confidences (n,) of results with vectors (n, K, d) and scores (n,)."""
        if not len(vectors):
            return np.zeros(0)
        self._see_store()
        queries, weights = self.queries(query)
        mean, spread = self._moments(queries, weights, vectors)
        law = self._law(query, queries, weights, kind)
        if where:  # fewer entries were looked at
            law = law.of(self.store.count([*where, Condition("kind", "=", kind)]))
        return law.below((scores - mean) / spread)

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
                self._sentences = embedded_sentences(self._embedder())
            return self._sentences

    def pictures(self) -> np.ndarray:
        """Pictures spread over the index, (b, K, d)."""
        with self._lock:
            if self._pictures is None:
                self._pictures = self.store.background(len(SENTENCES))
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
        law = self._work_out(queries, weights, kind)
        self.store.set_properties({PROPERTY + kind: json.dumps({**asdict(law), "sentences": _list_digest()})})

    def _law(self, query: SearchQuery, queries: np.ndarray, weights: np.ndarray, kind: Kind) -> Gumbel:
        key = (kind, *((term.kind, term.weight) for term in query.terms))
        law = self._laws.get(key)
        if law is None:  # worked out without the lock: other threads have theirs already, and need not wait
            plain = len(query.terms) == 1 and query.terms[0].kind == "sentence"
            kept = self._kept(kind) if plain else None
            law = self._work_out(queries, weights, kind) if kept is None else kept
            with self._lock:
                self._laws[key] = law
        return law

    def _kept(self, kind: Kind) -> Gumbel | None:
        try:
            fields = json.loads(self.store.properties[PROPERTY + kind])
            if fields.pop("sentences") != _list_digest():
                return None
            return Gumbel(**fields)
        except (KeyError, ValueError, TypeError):
            return None

    def _work_out(self, queries: np.ndarray, weights: np.ndarray, kind: Kind) -> Gumbel:
        """Search for every background query, and fit the law to how far each one's best result stands out."""
        where = [Condition("kind", "=", kind)]
        count = self.store.count(where)
        if not count or len(queries) < 8:
            return Gumbel(0.0, 1.0, max(1, count))
        if self.store.count() == count:
            where = []
        # A set of vectors has no weighted sum; its first and weightiest term says where to look.
        asked = combined(queries, weights) if queries.shape[2] == 1 else queries[:, int(weights.argmax())]
        hits = self.store.search(asked, LOOKED_AT + 1, where).hits
        keys = list(dict.fromkeys(hit.key for some in hits for hit in some))
        rows = {key: row for row, key in enumerate(keys)}
        entries = [entry for entry in self.store.get(keys, locals=False) if entry is not None]
        if len(entries) < len(keys):  # deleted meanwhile
            rows = {entry.key: row for row, entry in enumerate(entries)}
        vectors = np.stack([entry.vectors for entry in entries])
        scores = weighted_scores(queries, weights, vectors, self.store.layout)
        z = _among_others(scores)
        own = scores >= IDENTICAL  # a background picture is in the index itself
        best = []
        for b, some in enumerate(hits):
            fitting = [z[b, rows[hit.key]] for hit in some if hit.key in rows and not own[b, rows[hit.key]]]
            if fitting:
                best.append(max(fitting))
        return Gumbel.fit(np.array(best), count) if len(best) >= 8 else Gumbel(0.0, 1.0, count)

    def _moments(self, queries: np.ndarray, weights: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation (n,) of the background's scores with each of n entries."""
        scores = weighted_scores(queries, weights, vectors, self.store.layout)
        # A background picture that is the entry itself says nothing of chance.
        other = scores < IDENTICAL
        count = np.maximum(other.sum(0), 1)
        mean = (scores * other).sum(0) / count
        spread = np.sqrt((np.square(scores - mean) * other).sum(0) / count)
        return mean, np.maximum(spread, 1e-6)


def _among_others(scores: np.ndarray) -> np.ndarray:
    """z of each query (q, n) among the others: a query that counted itself would stand out less than a new one."""
    exact, others = scores.astype(np.float64), max(1, len(scores) - 1)
    mean = (exact.sum(0) - exact) / others
    square = (np.square(exact).sum(0) - np.square(exact)) / others
    return np.asarray((exact - mean) / np.sqrt(np.maximum(square - np.square(mean), 1e-12)))


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
