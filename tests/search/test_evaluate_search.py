from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.asking.rerank import Rerank
from diptych.search.asking.results import RankedResults, Result
from diptych.search.evaluate_search import (
    QuerySet,
    calibration,
    describe,
    evaluate_index,
    evaluate_search,
    exact_scores,
    hit_rates,
    own_queries,
    recall_against_exact,
)
from diptych.search.index import Index
from tests.search import tiny
from tests.search.filling.test_read_items import png, tar
from tests.search.random_embedder import RandomEmbedder, random_units


def answer(*keys: str, confidence: float = 0.5) -> RankedResults:
    return RankedResults([Result(key, "picture", 0.5, confidence) for key in keys], {"total": 0.0})


def test_figures_of_an_index_with_its_own_sentences(vse_folder: str, tmp_path: Path) -> None:
    members = {
        f"{i}.{kind}": png(i) if kind == "png" else f"two dog {i}".encode()
        for i in range(12)
        for kind in ("png", "txt")
    }
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    index.sync(tar(tmp_path / "t.tar", members), what="both")
    asked = own_queries(index, 5)
    assert len(asked.texts) == 5
    assert asked.right is not None
    assert asked.right[0].startswith(f"{tmp_path}/t.tar#")
    camp = tiny.save_camp(tmp_path / "camp", vse_folder)
    figures = evaluate_search(index, asked, top=10, rerank=Rerank(camp, 10))
    assert (figures["entries"], figures["queries"], figures["exact"], figures["recall"]) == (24, 5, True, 1.0)
    assert figures["latency_ms"].keys() == {"median", "p95", "in_batch"}
    assert 0 <= figures["hits"]["r@1"] <= figures["hits"]["r@5"] <= figures["hits"]["r@10"] <= 1
    assert figures["rerank"].keys() >= {"hits", "latency_ms", "stages_ms", "fusion", "depth"}
    assert figures["rerank"]["stages_ms"]["rerank"] > 0
    told = describe(figures)
    assert "24 entries, 5 queries, exact" in told
    assert "re-ranked by" in told


def test_an_index_by_its_address(vse_folder: str, pictures: Path, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as index:
        index.sync(pictures)
    (tmp_path / "q.txt").write_text("two dog\n\na cat\n")
    figures = evaluate_index(tmp_path / "i.db", tmp_path / "q.txt", top=3)
    assert (figures["queries"], figures["recall"], figures["top"]) == (2, 1.0, 3)
    assert "hits" not in figures
    with pytest.raises(DiptychError, match="cannot be read as lines"):
        evaluate_index(tmp_path / "i.db", tmp_path / "none.txt")


def test_without_sentences_the_background_asks(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i.db", RandomEmbedder(8))
    index.add_vectors([str(i) for i in range(50)], random_units(50, 1, 8, 0))
    asked = own_queries(index, 7)
    assert (len(asked.texts), asked.right) == (7, None)
    figures = evaluate_search(index, asked, top=3)
    assert figures["recall"] == 1
    assert "hits" not in figures


@pytest.mark.parametrize("set_size", [1, 2])
def test_recall_counts_what_an_exact_search_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_size: int
) -> None:
    monkeypatch.setattr("diptych.search.evaluate_search.AT_ONCE", 7)
    index = Index.create(tmp_path / "i.db", RandomEmbedder(8, set_size))
    vectors = random_units(20, set_size, 8, 0)
    index.add_vectors([f"{i:02d}" for i in range(20)], vectors)
    answers = index.search_batch(["a", "b"], top=4)
    queries = index.embedder.embed_texts(["a", "b"])
    found = exact_scores(index.store, queries, 4, "picture")
    np.testing.assert_allclose(found, [[r.score for r in a.results] for a in answers], atol=1e-5)
    worse = [RankedResults(answers[0].results[:3], {}), answers[1]]
    assert recall_against_exact(index, ["a", "b"], worse, 4) == 7 / 8
    assert np.isneginf(exact_scores(index.store, queries, 30, "picture")[:, 20:]).all()


def test_hits_and_calibration() -> None:
    answers = [answer("a", "b", confidence=0.98), answer("x", "b", confidence=0.1), answer("y", confidence=0.96)]
    assert hit_rates(answers, ["a", "b", "z"]) == {
        "r@1": pytest.approx(1 / 3),
        "r@5": pytest.approx(2 / 3),
        "r@10": pytest.approx(2 / 3),
    }
    table = calibration(answers, ["a", "b", "z"])
    assert table["matched"] == pytest.approx(2 / 3)
    assert table["matched_without"] == pytest.approx(2 / 3)  # b beside a is sure enough; z is not there at all
    assert [(b["queries"], b["right"]) for b in table["bins"]] == [(1, 0.0), (0, None), (0, None), (0, None), (2, 0.5)]
    assert calibration([RankedResults([], {})], ["a"]) == {}
    assert QuerySet(["a"]).right is None
