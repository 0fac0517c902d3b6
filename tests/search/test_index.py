import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher
from diptych.search.asking.query import Term
from diptych.search.index import Index
from diptych.search.open_or_create import open_or_create
from diptych.search.stores.store import Condition, Layout
from tests.encoders.pictures import picture
from tests.search import tiny

TEXTS = ["two dog", "a", "a small cat sits left of the big blue boat"]


@pytest.fixture
def index(vse_folder: str, tmp_path: Path) -> Index:
    return Index.create(tmp_path / "i.db", vse_folder, device="cpu")


def test_results_are_those_of_the_matcher(index: Index, pictures: Path, vse_folder: str) -> None:
    report = index.sync(pictures)
    assert (report.added, len(index)) == (6, 6)
    paths = sorted(pictures.iterdir())
    scores = Matcher.from_pretrained(vse_folder).similarity(paths, TEXTS)
    for column, answer in enumerate(index.search_batch(TEXTS, top=4)):
        best = scores[:, column].topk(4)
        assert [r.path for r in answer.results] == [str(paths[i]) for i in best.indices]
        np.testing.assert_allclose([r.score for r in answer.results], best.values, atol=1e-5)
        assert answer.exact
    single = index.search(TEXTS[1], top=4)
    assert [r.path for r in single.results] == [r.path for r in index.search_batch(TEXTS, top=4)[1].results]
    assert single.timings.keys() >= {"encode", "retrieve", "confidence", "total"}
    assert single.timings["total"] >= single.timings["retrieve"]


def test_a_picture_finds_itself(index: Index, pictures: Path) -> None:
    index.sync(pictures)
    found = index.search(pictures / "003.png", top=1).results[0]
    assert found.path == str(pictures / "003.png")
    assert found.score == pytest.approx(1, abs=1e-5)
    with Image.open(pictures / "002.png") as image:
        assert index.search(image.copy(), top=1).results[0].path == str(pictures / "002.png")


def test_several_terms_add_up(index: Index, pictures: Path) -> None:
    index.sync(pictures)
    embed = index.embedder
    v = embed.embed_texts(["two dog", "snow"])[:, 0]
    p = embed.embed_pictures([pictures / "001.png"])[0, 0]
    q = v[0] + 2 * v[1] - 0.5 * p
    q /= np.linalg.norm(q)
    paths = sorted(pictures.iterdir())
    scores = embed.embed_pictures(paths)[:, 0] @ q
    answer = index.search([Term("two dog"), Term("snow", 2.0), Term(pictures / "001.png", -0.5)], top=6)
    assert [r.path for r in answer.results] == [str(paths[i]) for i in np.argsort(-scores)]
    np.testing.assert_allclose([r.score for r in answer.results], np.sort(scores)[::-1], atol=1e-5)
    assert all(r.confidence is not None for r in answer.results)


def test_several_terms_of_sets(dive_folder: str, tmp_path: Path, pictures: Path) -> None:
    index = Index.create(tmp_path / "sets.db", dive_folder, device="cpu")
    index.sync(pictures)
    matcher = Matcher.from_pretrained(dive_folder)
    paths = sorted(pictures.iterdir())
    scores = matcher.similarity(paths, ["two dog", "snow"]).numpy() @ np.array([1, -0.5]) / 1.5
    answer = index.search([Term("two dog"), Term("snow", -0.5)], top=3)
    assert [r.path for r in answer.results] == [str(paths[i]) for i in np.argsort(-scores)[:3]]
    np.testing.assert_allclose([r.score for r in answer.results], np.sort(scores)[::-1][:3], atol=1e-4)


def test_pictures_and_sentences_side_by_side(index: Index, pictures: Path) -> None:
    (pictures / "words.txt").write_text("two dog\na red boat\nsnow and grass\n")
    index.sync(pictures, what="both")
    assert {r.kind for r in index.search("two dog", top=9).results} == {"picture"}
    found = index.search("two dog", top=9, kind="sentence").results
    assert [found[0].text, len(found)] == ["two dog", 3]
    assert (found[0].path, found[0].file) == (f"{pictures}/words.txt#1", f"{pictures}/words.txt")
    assert found[0].score == pytest.approx(1, abs=1e-5)
    assert len(index.search(pictures / "001.png", top=9, kind="sentence").results) == 3


def test_filters_and_thresholds(index: Index, pictures: Path) -> None:
    index.sync(
        pictures, metadata={str(pictures / "001.png"): {"album": "a"}, str(pictures / "002.png"): {"album": "b"}}
    )
    found = index.search("dog", where=[Condition("album", "=", "a")]).results
    assert [(r.path, r.metadata["album"]) for r in found] == [(str(pictures / "001.png"), "a")]
    assert len(index.search("dog", where=[Condition("path", "matches", "*/00[1-3].png")]).results) == 3
    everything = index.search("dog").results
    middle = everything[2].score
    assert index.search("dog", threshold=middle).results == everything[:3]
    sure = [r for r in everything if r.confidence is not None and r.confidence >= 0.3]
    assert index.search("dog", least_confidence=0.3).results == sure
    assert all(r.confidence is None for r in index.search("dog", confidence=False).results)
    with pytest.raises(DiptychError, match="top: expected at least 1"):
        index.search("dog", top=0)


def test_near_duplicates_are_one_result(index: Index, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", 3)
    for i in range(4):
        with Image.open(folder / "000.png") as image:
            image.save(folder / f"copy-{i}.png", compress_level=i)
    index.sync(folder)
    apart = index.search("dog", top=9).results
    together = index.search("dog", top=9, group=0.9999).results
    assert (len(apart), len(together)) == (7, 3)
    grouped = next(r for r in together if r.duplicates)
    assert len(grouped.duplicates) == 4
    names = {Path(p).name for p in (grouped.path, *grouped.duplicates)}
    assert names == {"000.png", *(f"copy-{i}.png" for i in range(4))}
    # The copies do not push others out.
    assert len(index.search("dog", top=2, group=0.9999).results) == 2
    with pytest.raises(DiptychError, match="group"):
        index.search("dog", group=2)


def test_pictures_in_memory(index: Index) -> None:
    report = index.add({"a": picture(seed=0), "b": picture(seed=1)}, {"s": "two dog"}, {"a": {"stars": 3}})
    assert (report.added, len(index)) == (3, 3)
    assert index.search(picture(seed=1), top=1).results[0].key == "b"
    assert index.search("dog", where=[Condition("stars", ">", 2)]).results[0].key == "a"
    assert index.delete(["a", "none"]) == 1
    assert len(index) == 2


def test_vectors_from_elsewhere(tmp_path: Path) -> None:
    index = Index.create(tmp_path / "own.db", None, layout=Layout(3))
    index.add_vectors(["x", "y"], np.array([[2.0, 0, 0], [0, 1, 1]]), metadata={"x": {"n": 1}})
    found = index.search(np.array([1.0, 0, 0]), top=2).results
    assert [(r.key, round(r.score, 3), r.confidence) for r in found] == [("x", 1, None), ("y", 0, None)]
    with pytest.raises(DiptychError, match="no model to embed with"):
        index.search("a sentence")
    with pytest.raises(DiptychError, match="query of shape"):
        index.search(np.zeros(4))
    for keys, vectors, words in (
        (["a"], np.zeros((1, 3)), "zero or not finite"),
        (["a"], np.ones((1, 4)), r"expected \(entries, 1, 3\)"),
        (["a"], np.ones((2, 3)), "one for each"),
    ):
        with pytest.raises(DiptychError, match=words):
            index.add_vectors(keys, vectors)
    with pytest.raises(DiptychError, match="needs the layout"):
        Index.create(tmp_path / "other.db", None)


def test_opened_again(index: Index, pictures: Path, vse_folder: str, tmp_path: Path) -> None:
    index.sync(pictures)
    expected = index.search("two dog").results
    index.close()
    with Index.open(tmp_path / "i.db", device="cpu") as again:
        assert again.model == vse_folder
        assert again.search("two dog").results == expected
    with open_or_create(tmp_path / "i.db", vse_folder) as again:
        assert len(again) == 6
    with pytest.raises(DiptychError, match="no such index"):
        Index.open(tmp_path / "none.db")


def test_another_model_is_refused(index: Index, pictures: Path, tmp_path: Path) -> None:
    index.sync(pictures)
    index.close()
    clip = tiny.save_clip(tmp_path / "clip")
    with pytest.raises(DiptychError, match="index into another"):
        open_or_create(tmp_path / "i.db", clip)
    with pytest.raises(DiptychError, match=r"made (with|for)"):
        Index.create(tmp_path / "i.db", clip)


def test_a_model_that_changed_is_noticed(tmp_path: Path, pictures: Path) -> None:
    folder = tmp_path / "model"
    tiny.save_vse(folder)
    with Index.create(tmp_path / "i.db", str(folder), device="cpu") as index:
        index.sync(pictures)
    matcher = Matcher.from_pretrained(folder)
    for parameter in matcher.parameters():
        parameter.data.neg_()
    matcher.save_pretrained(folder)
    with (
        Index.open(tmp_path / "i.db", device="cpu") as index,
        pytest.raises(DiptychError, match="no longer what it was"),
    ):
        index.search("two dog")


def test_a_process_killed_right_after_making_the_file(tmp_path: Path, vse_folder: str, pictures: Path) -> None:
    from diptych.search.stores.address import open_store

    open_store(tmp_path / "i.db", Layout(8)).close()
    with pytest.raises(DiptychError, match="never filled"):
        Index.open(tmp_path / "i.db")
    with open_or_create(tmp_path / "i.db", vse_folder, device="cpu") as index:
        assert index.sync(pictures).added == 6


def test_many_readers_beside_a_writer(index: Index, pictures: Path, tmp_path: Path) -> None:
    index.sync(pictures)
    more = tiny.fill(tmp_path / "more", 20, start=50)
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                for answer in index.search_batch(["two dog", "snow"], top=5):
                    scores = [r.score for r in answer.results]
                    if len(scores) != 5 or scores != sorted(scores, reverse=True):
                        wrong.append(scores)
        except Exception as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for path in sorted(more.iterdir()):
        index.sync(path)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len(index) == 26
