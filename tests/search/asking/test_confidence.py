import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from diptych.search.asking.confidence import PROPERTY, SPREAD, Chance, embedded_sentences, weighted_scores
from diptych.search.asking.gumbel import Gumbel
from diptych.search.asking.query import SearchQuery, Term
from diptych.search.asking.results import MATCHES
from diptych.search.asking.unrelated_sentences import SENTENCES
from diptych.search.index import Index
from diptych.search.stores.store import Condition
from tests.search.random_embedder import RandomEmbedder, random_units


def make(
    tmp_path: Path, count: int = 1500, dim: int = 32, set_size: int = 1
) -> tuple[Index, RandomEmbedder, np.ndarray]:
    embedder = RandomEmbedder(dim, set_size)
    index = Index.create(tmp_path / "i.db", embedder)
    vectors = random_units(count, set_size, dim, seed=5)
    keys = [f"{i:05d}" for i in range(count)]
    index.add_vectors(keys, vectors, metadata={k: {"n": i} for i, k in enumerate(keys)})
    return index, embedder, vectors


def plant(embedder: RandomEmbedder, vectors: np.ndarray, count: int, share: float) -> list[str]:
    """Sentences that fit one picture each: `share` of it, the rest noise."""
    noise = random_units(count, vectors.shape[1], vectors.shape[2], seed=9)
    near = share * vectors[:count] + (1 - share**2) ** 0.5 * noise
    near /= np.linalg.norm(near, axis=-1, keepdims=True)
    embedder.planted |= {f"planted {i}": v for i, v in enumerate(near)}
    return [f"planted {i}" for i in range(count)]


def best(index: Index, texts: list[str]) -> np.ndarray:
    return np.array([answer.results[0].confidence for answer in index.search_batch(texts, top=3)])


@pytest.mark.parametrize("set_size", [1, 3])
def test_unrelated_queries_are_spread_evenly_and_related_ones_stand_out(tmp_path: Path, set_size: int) -> None:
    index, embedder, vectors = make(tmp_path, set_size=set_size)
    unrelated = best(index, [f"unrelated {i}" for i in range(400)])
    # The confidence of the best of an unrelated query is below c for a share c of them.
    for share in (0.25, 0.5, 0.75, 0.9):
        assert abs(np.mean(unrelated < share) - share) < 0.12
    assert np.mean(unrelated >= MATCHES) < 0.2
    related = best(index, plant(embedder, vectors, 100, 0.9))
    assert np.mean(related >= MATCHES) > 0.95


def test_a_collection_of_one_thing_matches_as_a_whole(tmp_path: Path) -> None:
    embedder = RandomEmbedder(32)
    index = Index.create(tmp_path / "i.db", embedder)
    centre = random_units(1, 1, 32, seed=1)
    vectors = centre + 0.3 * random_units(300, 1, 32, seed=2)
    index.add_vectors([str(i) for i in range(300)], vectors)
    embedder.planted["dogs"] = centre[0]
    answer = index.search("dogs", top=50)
    assert min(r.confidence or 0 for r in answer.results) > 0.99
    assert answer.matches


def test_nothing_here_matches(tmp_path: Path) -> None:
    index, embedder, _ = make(tmp_path)
    assert index.search("no", threshold=2).matches is False
    away = embedder.planted["away"] = random_units(1, 1, 32, seed=77)[0]
    answers = [index.search("away"), index.search("away", confidence=False)]
    assert answers[1].matches is None
    assert answers[0].matches == (max(r.confidence or 0 for r in answers[0].results) >= MATCHES)
    assert away.shape == (1, 32)


def test_the_law_is_kept_with_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, embedder, vectors = make(tmp_path, count=400)
    texts = plant(embedder, vectors, 5, 0.7)
    before = best(index, texts)
    index.prepare()
    index.close()
    again = Index.create(tmp_path / "i.db", embedder)
    monkeypatch.setattr(type(again.searcher.background), "_of_all", None)  # it must not be worked out again
    np.testing.assert_allclose(best(again, texts), before, atol=1e-9)


def test_a_law_of_another_formula_is_worked_out_anew(tmp_path: Path) -> None:
    index, embedder, vectors = make(tmp_path, count=400)
    texts = plant(embedder, vectors, 5, 0.7)
    before = best(index, texts)
    index.prepare()
    kept = json.loads(index.store.properties[PROPERTY + "picture"])
    earlier = {**kept["law"], "place": 50.0, "sentences": kept["sentences"]}  # what an index held before
    index.store.set_properties({PROPERTY + "picture": json.dumps(earlier)})
    index.close()
    np.testing.assert_allclose(best(Index.create(tmp_path / "i.db", embedder), texts), before, atol=1e-9)


def test_an_entry_whose_scores_differ_more_must_stand_out_further() -> None:
    chance = Chance(Gumbel(0.0, 1.0, 10), mean=0.2, spread=0.1)
    z = chance.z(np.array([0.5, 0.5, 0.5]), np.array([0.1, 0.2, 0.05]))
    np.testing.assert_allclose(z, [3, 3 - SPREAD, 3 + SPREAD / 2])


def towards(vector: np.ndarray, cosines: np.ndarray) -> np.ndarray:
    """Unit vectors (n, 1, d) at these cosines to a unit vector (1, d)."""
    other = random_units(1, 1, vector.shape[1], seed=77)[0]
    other -= (other @ vector.T) * vector
    other /= np.linalg.norm(other)
    return np.stack([c * vector + np.sqrt(1 - c * c) * other for c in cosines]).astype(np.float32)


def test_a_greater_score_of_the_same_entry_has_a_greater_confidence(tmp_path: Path) -> None:
    index, _, vectors = make(tmp_path, count=300)
    query, asked = SearchQuery.of_sentence("some thing"), index.searcher.background.confidences
    terms = towards(vectors[0], np.linspace(-0.2, 1, 41))
    confidences = [asked(query, term[None], vectors[:1], "picture", ())[0] for term in terms]
    assert (np.diff(confidences) >= 0).all()
    assert confidences[0] < 0.01
    assert confidences[-1] > 0.99


def test_what_is_taken_off_for_hubs_leaves_confidences_alone(tmp_path: Path) -> None:
    class Levelled(RandomEmbedder):
        """Adds a number to each side; a sentence's is large, and taken off again for confidences."""

        def __init__(self, off: float) -> None:
            super().__init__(33)
            self.off = off

        def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
            own = np.stack([random_units(1, 1, 32, seed=len(text))[0] for text in texts])
            return np.concatenate([own, np.full((len(texts), 1, 1), self.off, np.float32)], 2)

        def unlevelled(self, vectors: np.ndarray) -> np.ndarray:
            return np.concatenate([vectors[..., :32], np.zeros_like(vectors[..., 32:])], -1)

    pictures = np.concatenate([random_units(200, 1, 32, seed=3), np.full((200, 1, 1), 0.25, np.float32)], 2)
    found, best = [], []
    for off in (0.0, -0.8):
        index = Index.create(tmp_path / f"{off}.db", Levelled(off))
        index.add_vectors([f"{i:03d}" for i in range(200)], pictures)
        answer = index.search("anything at all", top=5)
        found.append([(r.key, r.confidence) for r in answer.results])
        best.append(answer.results[0].score)
    assert best[1] == pytest.approx(best[0] - 0.2, abs=0.01)  # an index holds unit vectors
    assert [key for key, _ in found[0]] == [key for key, _ in found[1]]
    np.testing.assert_allclose([c for _, c in found[0]], [c for _, c in found[1]], atol=1e-6)
    assert not index.searcher.background.pictures()[..., 32:].any()
    assert not index.searcher.background.sentences()[..., 32:].any()


def test_the_order_in_which_entries_came_changes_nothing(tmp_path: Path) -> None:
    embedder, vectors = RandomEmbedder(32), random_units(200, 1, 32, seed=5)
    found = []
    for name, order in (("one", np.arange(200)), ("other", np.arange(200)[::-1])):
        index = Index.create(tmp_path / f"{name}.db", embedder)
        index.add_vectors([f"{i:03d}" for i in order], vectors[order])
        answer = index.search("anything at all", top=5)
        found.append([(r.key, r.confidence) for r in answer.results])
    for (key, confidence), (other_key, other) in zip(*found, strict=True):
        assert key == other_key
        assert confidence == pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize("count", [1, 5])
def test_a_tiny_collection_has_confidences_that_mean_the_same(tmp_path: Path, count: int) -> None:
    index, embedder, vectors = make(tmp_path, count=count)
    unrelated = best(index, [f"unrelated {i}" for i in range(300)])
    assert np.isfinite(unrelated).all()
    for share in (0.5, 0.9):
        assert abs(np.mean(unrelated < share) - share) < 0.12
    assert (best(index, plant(embedder, vectors, 1, 0.95)) >= MATCHES).all()


def test_an_empty_collection_matches_nothing(tmp_path: Path) -> None:
    index, _, _ = make(tmp_path, count=1)
    index.delete(["00000"])
    assert index.search("anything").matches is False


def test_with_filters_a_confidence_means_the_same(tmp_path: Path) -> None:
    index, _, _ = make(tmp_path)
    for most in (3, 40, 400):
        where = [Condition("n", "<", most)]
        answers = index.search_batch([f"unrelated {i}" for i in range(300)], top=3, where=where)
        unrelated = np.array([answer.results[0].confidence for answer in answers])
        for share in (0.5, 0.9):
            assert abs(np.mean(unrelated < share) - share) < 0.12


def test_filters_make_chance_matches_rarer(tmp_path: Path) -> None:
    index, embedder, vectors = make(tmp_path)
    plant(embedder, vectors, 1, 0.65)
    whole = index.search("planted 0", top=1).results[0]
    few = index.search("planted 0", top=1, where=[Condition("n", "<", 10)]).results[0]
    assert whole.key == few.key == "00000"
    assert whole.confidence is not None
    assert few.confidence is not None
    assert few.confidence > whole.confidence


def test_queries_of_several_terms_have_a_background_of_their_own(tmp_path: Path) -> None:
    index, _, _ = make(tmp_path)
    queries = [[Term(f"x {i}"), Term(f"y {i}", 2.0), Term(f"z {i}", -1.0)] for i in range(200)]
    unrelated = np.array([a.results[0].confidence for a in index.search_batch(queries, top=3)])
    for share in (0.25, 0.5, 0.9):
        assert abs(np.mean(unrelated < share) - share) < 0.13


def test_gumbel() -> None:
    law = Gumbel(3.0, 0.5, 1000)
    sample = np.random.default_rng(0).gumbel(3.0, 0.5, 4000)
    fitted = Gumbel.fit(sample, 1000)
    assert abs(fitted.place - 3) < 0.05
    assert abs(fitted.width - 0.5) < 0.05
    # A quarter of sentences that do match something change little.
    sample[:800] = 12
    assert abs(Gumbel.fit(sample, 1000).place - 3) < 0.4
    np.testing.assert_allclose(law.below(np.array([2.0, 3.0, 5.0])), np.exp(-np.exp([2.0, 0.0, -4.0])))
    # The best of twice as many: F(z)^2.
    np.testing.assert_allclose(law.of(2000).below(np.array([3.2])), law.below(np.array([3.2])) ** 2)
    assert law.below(np.array([-1e9, 1e9])).tolist() == [0, 1]
    assert Gumbel.fit(np.full(20, 2.0), 5).below(np.array([1.9, 2.1])).tolist() == [0, pytest.approx(1)]


def test_weighted_scores_are_the_definition() -> None:
    terms, vectors = random_units(3, 2, 5, 0).reshape(3, 2, 1, 5), random_units(4, 1, 5, 1)
    weights = np.array([1.0, -0.5], np.float32)
    scores = weighted_scores(terms, weights, vectors, 16.0)
    for q in range(3):
        total = terms[q, 0, 0] - 0.5 * terms[q, 1, 0]
        for n in range(4):
            assert scores[q, n] == pytest.approx(total @ vectors[n, 0] / np.linalg.norm(total), abs=1e-5)


def test_background_sentences_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    embedder = RandomEmbedder(8)
    first = embedded_sentences(embedder)
    (path,) = (tmp_path / "diptych").iterdir()
    asked: list[int] = []
    plain = embedder.embed_texts
    embedder.embed_texts = lambda texts: asked.append(len(texts)) or plain(texts)  # type: ignore[func-returns-value,method-assign]
    np.testing.assert_array_equal(embedded_sentences(embedder), first)
    assert sum(asked) <= 1  # the probe at most
    path.write_bytes(b"damaged")
    np.testing.assert_array_equal(embedded_sentences(embedder), first)
    assert len(SENTENCES) == len(set(SENTENCES)) == len(first)


def test_an_index_that_grew_has_another_law(tmp_path: Path) -> None:
    index, embedder, vectors = make(tmp_path, count=100)
    plant(embedder, vectors, 1, 0.55)
    small = index.search("planted 0", top=1).results[0]
    index.add_vectors([f"more {i}" for i in range(3000)], random_units(3000, 1, 32, seed=11))
    index.prepare()
    large = next(r for r in index.search("planted 0", top=50).results if r.key == small.key)
    assert small.confidence is not None
    assert large.confidence is not None
    assert large.confidence < small.confidence
