from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.search.asking.query import Term
from diptych.search.asking.rerank import RememberedPictures, Rerank, Reranker
from diptych.search.index import Index
from diptych.search.stores.store import Entry, Stamp
from tests.search import tiny
from tests.search.filling.test_read_items import png, tar


@pytest.fixture(scope="module")
def camp(vse_folder: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A re-ranker over the searching model's own local features."""
    return tiny.save_camp(tmp_path_factory.mktemp("rerank") / "camp", vse_folder)


@pytest.mark.parametrize("kept", [True, False])
def test_the_second_stage_rescores_the_best(
    vse_folder: str, camp: str, pictures: Path, tmp_path: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.create(tmp_path / "i.db", vse_folder, keep_locals=camp if kept else None, device="cpu")
    index.sync(pictures)
    if kept:  # the pictures are not needed any more
        monkeypatch.setattr("diptych.search.asking.rerank.open_key", None)
    paths = [r.path for r in index.search("two dog", top=4).results]
    scores = Matcher.from_pretrained(camp).similarity(paths, ["two dog"])[:, 0].numpy()
    answer = index.search("two dog", top=4, rerank=Rerank(camp, 4, "replace"))
    assert {r.path for r in answer.results} == set(paths)
    assert {"encode", "retrieve", "rerank", "total"} <= answer.timings.keys()
    for result in answer.results:
        place = paths.index(result.path)
        assert result.rerank == pytest.approx(float(scores[place]), abs=2e-3)
        assert result.score == result.rerank
        assert result.retrieval == pytest.approx(index.search("two dog", top=4).results[place].score)
    assert [r.score for r in answer.results] == sorted((r.score for r in answer.results), reverse=True)
    shown = answer.to_json()["results"][0]
    assert shown.keys() >= {"path", "score", "confidence", "retrieval", "rerank"}


def test_batches_and_weights(vse_folder: str, camp: str, pictures: Path, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    index.sync(pictures)
    rerank = Rerank(camp, 6, "replace")
    queries = ["two dog", [Term("a red boat"), Term("snow", -0.5)], "a cat"]
    together = index.search_batch(queries, top=6, rerank=rerank)
    for query, answer in zip(queries, together, strict=True):
        alone = index.search(query, top=6, rerank=rerank)
        np.testing.assert_allclose(
            sorted(r.score for r in answer.results), sorted(r.score for r in alone.results), atol=1e-5
        )
    matcher = Matcher.from_pretrained(camp)
    for result in together[1].results:
        boat, snow = matcher.similarity([result.path], ["a red boat", "snow"])[0].tolist()
        assert result.score == pytest.approx((boat - 0.5 * snow) / 1.5, abs=1e-4)


def test_sentences_for_a_picture(vse_folder: str, camp: str, pictures: Path, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    index.add(sentences={"a": "two dog", "b": "a red boat", "c": "snow"})
    answer = index.search(pictures / "001.png", kind="sentence", rerank=Rerank(camp, fusion="replace"))
    matcher = Matcher.from_pretrained(camp)
    for result in answer.results:
        expected = float(matcher.similarity([pictures / "001.png"], [result.text])[0, 0])
        assert result.score == pytest.approx(expected, abs=1e-4)
    with pytest.raises(DiptychError, match="re-ranking sentences needs a picture"):
        index.search("two dog", kind="sentence", rerank=Rerank(camp))


def test_pictures_that_are_gone_and_pictures_in_tars(
    vse_folder: str, camp: str, pictures: Path, tmp_path: Path
) -> None:
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    index.sync(pictures, tar(tmp_path / "t.tar", {"a.png": png(0)}))
    (pictures / "002.png").unlink()
    answer = index.search("two dog", top=7, rerank=Rerank(camp))
    assert [r.path for r in answer.results if r.rerank is None] == [str(pictures / "002.png")]
    assert answer.results[-1].path == str(pictures / "002.png")
    assert f"{tmp_path}/t.tar#a.png" in {r.path for r in answer.results}


def test_a_matcher_that_reads_pixels_reranks_too(
    vse_folder: str, dive_folder: str, pictures: Path, tmp_path: Path
) -> None:
    index = Index.create(tmp_path / "i.db", dive_folder, device="cpu")
    index.sync(pictures)
    answer = index.search("two dog", top=1, rerank=Rerank(vse_folder, 6, "replace"))
    scores = Matcher.from_pretrained(vse_folder).similarity(sorted(pictures.iterdir()), ["two dog"])
    assert answer.results[0].score == pytest.approx(float(scores.max()), abs=1e-4)
    with pytest.raises(DiptychError, match="reads pictures itself"):
        Index.create(tmp_path / "j.db", dive_folder, keep_locals=vse_folder)


def test_settings_that_mean_nothing(camp: str) -> None:
    with pytest.raises(DiptychError, match="depth"):
        Rerank(camp, 0)
    with pytest.raises(DiptychError, match="did you mean 'rrf'"):
        Rerank(camp, 5, "rff")  # type: ignore[arg-type]
    with pytest.raises(DiptychError):
        Reranker("./nothing")


def test_what_is_kept_of_a_picture_serves_later_queries(
    vse_folder: str, camp: str, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    index.sync(pictures)
    encoded: list[int] = []
    encode = Matcher.encode_images

    def counted(self: Matcher, given: Any, batch_size: int = 64) -> Kept:
        encoded.append(len(given))
        return encode(self, given, batch_size)

    monkeypatch.setattr(Matcher, "encode_images", counted)
    first, again, other = (index.search(q, top=4, rerank=Rerank(camp, 4)) for q in ("two dog", "two dog", "a cat"))
    assert [(r.path, r.rerank) for r in first.results] == [(r.path, r.rerank) for r in again.results]
    assert encoded[0] == 4
    assert sum(encoded) == len({r.path for r in first.results} | {r.path for r in other.results})


def test_pictures_are_remembered_as_they_are_and_the_oldest_forgotten() -> None:
    def entry(key: str, changed: int = 0) -> Entry:
        return Entry(key, "picture", np.zeros((1, 2), np.float32), Stamp(key, 1, changed, f"{changed}"))

    one = Kept(torch.ones(1, 3, 4), torch.ones(1, 3, dtype=torch.bool))  # 51 bytes
    remembered = RememberedPictures(120)
    for key in "ab":
        remembered.add(entry(key), one)
    assert remembered.find([entry("a"), entry("b", changed=1), entry("c")]).keys() == {"a"}
    remembered.add(entry("c"), one)
    assert remembered.find([entry(key) for key in "abc"]).keys() == {"a", "c"}  # b was asked for longest ago
    remembered.add(entry("c"), one)
    assert remembered.held == 2 * 51
