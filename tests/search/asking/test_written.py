import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.search.asking.query import SearchQuery, Term
from diptych.search.asking.written import merged, written_words
from diptych.search.index import Index
from diptych.search.stores.store import TEXT_IN_PICTURES, Condition
from tests.search.random_embedder import RandomEmbedder


def query(*terms: Term) -> SearchQuery:
    return SearchQuery(terms)


def test_words_that_may_be_written() -> None:
    assert written_words(query(Term("The parking TICKET of a car"))) == ["parking", "ticket", "car"]
    assert written_words(query(Term("sale"), Term("café 24"), Term("dog", -1.0))) == ["sale", "café", "24"]
    assert written_words(query(Term("of the"))) == []
    assert written_words(query(Term("sale"), Term(Path("a.jpg")))) == []
    assert written_words(query(Term("sale"), Term(Path("a.jpg"), -1.0))) == ["sale"]


def test_two_rankings_become_one() -> None:
    assert merged([1, 2, 3], []) == [1, 2, 3]
    assert merged([], [2, 1]) == [2, 1]
    assert merged([1, 2, 3], [7, 8]) == [7, 1, 8, 2, 3]
    assert merged([1, 2, 3], [3]) == [3, 1, 2]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Twenty pictures without text and two with; sentences have nothing to do with any of them."""
    index = Index.create(tmp_path / "i.db", RandomEmbedder())
    rng = np.random.default_rng(0)
    pictures = {f"{i:02d}": Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)) for i in range(22)}
    index.add(pictures, metadata={"03": {"written": "Parking ticket No. 7"}, "11": {"written": "TICKET office"}})
    index.store.set_properties({TEXT_IN_PICTURES: "yes"})
    return index


def test_what_is_written_is_found(index: Index) -> None:
    best = [r.key for r in index.search("boat", top=22).results]
    answer = index.search("a parking ticket", top=3)
    assert answer.results[0].key == "03"
    assert answer.results[0].written == "Parking ticket No. 7"
    assert answer.results[0].to_json()["written"] == "Parking ticket No. 7"
    assert [r.written for r in answer.results[1:]] == ["", ""]
    assert answer.matches
    # Its score is the one that it has anyway.
    everything = {r.key: r.score for r in index.search("a parking ticket", top=22).results}
    assert answer.results[0].score == pytest.approx(everything["03"], abs=1e-6)
    assert len(everything) == len(best) == 22
    two = index.search("ticket", top=22).results
    assert {r.key for r in two if r.written} == {"03", "11"}
    assert [bool(r.written) for r in two[:4]].count(True) == 2
    assert not any(r.written for r in index.search("parking boat", top=22).results)


def test_filters_and_bounds_hold_for_it(index: Index) -> None:
    where = [Condition("path", "!=", "03")]
    assert [r.key for r in index.search("ticket", top=5, where=where).results if r.written] == ["11"]
    sure = index.search("ticket", top=5, least_confidence=1.0).results
    assert {r.key for r in sure} == {"03", "11"}  # it stands there, whatever the model sees
    assert {r.key for r in index.search("ticket", top=5, threshold=9.0).results} == {"03", "11"}
    assert len(index.search("ticket", top=1).results) == 1
    grouped = index.search("ticket", top=5, group=0.9).results
    assert len({r.key for r in grouped}) == 5


def test_nothing_is_looked_up_where_no_text_was_ever_read(index: Index) -> None:
    index.store.set_properties({TEXT_IN_PICTURES: ""})
    answer = Index.create(index.store.address, RandomEmbedder()).search("a parking ticket", top=22)
    assert not any(r.written for r in answer.results)
    assert "written" not in answer.timings


def test_text_goes_with_its_entry(index: Index) -> None:
    index.delete(["03"])
    assert index.store.written(["ticket"], 9) == ["11"]
    with closing(sqlite3.connect(index.store.address)) as db:  # and nothing of it is left in the file's index of words
        assert db.execute("SELECT text FROM written").fetchall() == [("TICKET office",)]
