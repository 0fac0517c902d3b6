import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from diptych.explain.explain import explain
from diptych.matchers.base import Matcher
from diptych.search.asking.query import Term
from diptych.search.asking.rerank import Rerank
from diptych.search.index import Index
from diptych.search.stores.store import Condition
from diptych.web.app import create_app
from diptych.web.settings import Settings
from tests.encoders.pictures import picture
from tests.search import tiny
from tests.web.models import camp_folder, index, own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["camp_folder", "index", "own_folders", "unchanged_index", "vse_folder"]


@pytest.fixture
def app(index: Index, camp_folder: str) -> Iterator[FastAPI]:
    app = create_app(Settings(token=TOKEN, rerank=camp_folder, credits="by nobody"), index)
    app.state.service.warm()
    yield app
    app.state.service.close()


@pytest.fixture
def web(app: FastAPI) -> TestClient:
    return client(app)


@pytest.fixture(scope="module")
def steady(unchanged_index: Index, camp_folder: str) -> Iterator[TestClient]:
    """For requests that change nothing."""
    app = create_app(Settings(token=TOKEN, rerank=camp_folder), unchanged_index)
    yield client(app)
    app.state.service.close()


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Where the pictures of the index are."""
    return tmp_path / "pictures" / "album"


def found(web: TestClient, **asked: Any) -> dict[str, Any]:
    answer = web.post("/api/search", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def id_of(web: TestClient, name: str) -> str:
    results = found(web, terms=[{"text": "a dog"}], top=100)["results"]
    return next(str(result["id"]) for result in results if result["path"] == name)


# Searching.


def test_a_sentence_finds_what_the_index_finds(web: TestClient, index: Index, tmp_path: Path) -> None:
    told = found(web, terms=[{"text": "two dog"}], top=5)
    direct = index.search("two dog", 5)
    root = f"{tmp_path / 'pictures'}/"
    assert [r["path"] for r in told["results"]] == [r.key.removeprefix(root) for r in direct.results]
    np.testing.assert_allclose([r["score"] for r in told["results"]], [r.score for r in direct.results], atol=1e-5)
    assert [r["confidence"] for r in told["results"]] == [round(r.confidence or 0, 4) for r in direct.results]
    assert told["matches"] == direct.matches
    assert told["exact"]
    assert told["timings"].keys() >= {"encode", "retrieve", "total"}
    first = told["results"][0]
    assert first["metadata"] == direct.results[0].metadata
    assert first["picture"] == f"/pictures/{first['id']}"
    assert (first["kind"], first["text"], first["duplicates"], first["place_before"]) == ("picture", "", [], None)
    assert str(tmp_path) not in str(told)


def test_a_line_is_a_sentence_or_terms(web: TestClient, index: Index, album: Path) -> None:
    by_line = web.get("/api/search", params={"q": "two dog", "top": 4}).json()["results"]
    assert by_line == found(web, terms=[{"text": "two dog"}], top=4)["results"]
    id = id_of(web, "album/003.png")
    by_line = web.get("/api/search", params={"q": f"+ 2:two dog - @{id}", "top": 4}).json()["results"]
    direct = index.search([Term("two dog", 2.0), Term(album / "003.png", -1.0)], 4)
    assert [r["path"] for r in by_line] == [f"album/{Path(r.key).name}" for r in direct.results]


def test_terms_add_up(web: TestClient, index: Index, album: Path) -> None:
    id = id_of(web, "album/003.png")
    terms = [{"text": "two dog"}, {"id": id, "weight": -0.5}, {"text": "snow", "weight": 2}]
    told = found(web, terms=terms, top=6)["results"]
    direct = index.search([Term("two dog"), Term(album / "003.png", -0.5), Term("snow", 2.0)], 6)
    assert [r["path"] for r in told] == [f"album/{Path(r.key).name}" for r in direct.results]
    np.testing.assert_allclose([r["score"] for r in told], [r.score for r in direct.results], atol=1e-5)


def test_filters_and_patterns(web: TestClient, index: Index) -> None:
    told = found(web, terms=[{"text": "a dog"}], where=["stars>=3", "album=holiday"], path="album/*", top=50)["results"]
    assert {r["metadata"]["stars"] for r in told} == {3, 4}
    assert len(told) == index.count([Condition("stars", ">=", 3)])
    assert found(web, terms=[{"text": "a dog"}], path="elsewhere/*")["results"] == []
    told = web.get("/api/search", params={"q": "a dog", "where": ["stars>=3", "stars<4"]}).json()["results"]
    assert {r["metadata"]["stars"] for r in told} == {3}


def test_sentences_are_found_and_stand_for_themselves(web: TestClient, index: Index) -> None:
    told = found(web, terms=[{"text": "two dog"}], kind="sentence")["results"]
    assert (told[0]["text"], told[0]["picture"], len(told)) == ("two dog", None, 3)
    assert told[0]["path"] == "words.txt#1"
    by_sentence = found(web, terms=[{"id": told[0]["id"]}], top=4)["results"]
    assert [r["score"] for r in by_sentence] == [
        r["score"] for r in found(web, terms=[{"text": "two dog"}], top=4)["results"]
    ]


def test_thresholds_and_groups(web: TestClient, album: Path, index: Index) -> None:
    id = id_of(web, "album/003.png")
    assert [r["path"] for r in found(web, terms=[{"id": id}], threshold=0.999)["results"]] == ["album/003.png"]
    assert found(web, terms=[{"text": "two dog"}], least_confidence=1.0)["results"] == []
    with Image.open(album / "003.png") as image:
        image.save(album / "copy.png")
    index.sync(album.parent, what="both")
    told = found(web, terms=[{"id": id}], group=0.99999, top=1)["results"][0]
    both = {told["path"], *(other["path"] for other in told["duplicates"])}
    assert both == {"album/003.png", "album/copy.png"}
    assert web.get(f"/pictures/{told['duplicates'][0]['id']}").status_code == 200


def test_re_ranking_says_what_moved(web: TestClient, index: Index, camp_folder: str) -> None:
    told = found(web, terms=[{"text": "two dog"}], rerank=True, depth=8, top=8, fusion="replace")["results"]
    first = [r.key for r in index.search("two dog", 8).results]
    direct = index.search("two dog", 8, rerank=Rerank(camp_folder, 8, "replace")).results
    assert [r["path"] for r in told] == [f"album/{Path(r.key).name}" for r in direct]
    assert [r["place_before"] for r in told] == [first.index(r.key) + 1 for r in direct]
    assert all(r["score"] == r["rerank"] != r["retrieval"] for r in told)
    sums = found(web, terms=[{"text": "two dog"}], rerank=True, depth=3, top=8)["results"]
    assert sorted(r["place_before"] for r in sums) == [1, 2, 3]


def test_a_picture_finds_itself(web: TestClient, album: Path) -> None:
    data = (album / "004.png").read_bytes()
    told = web.post("/api/search/picture", files={"file": data}, data={"top": 2, "where": ["stars>=1", "stars<9"]})
    results = told.json()["results"]
    assert (results[0]["path"], len(results)) == ("album/004.png", 2)
    assert results[0]["score"] == pytest.approx(1, abs=1e-5)


def test_uploads_stand_in_queries(web: TestClient, index: Index) -> None:
    data = io.BytesIO()
    picture(80, 60, seed=77).save(data, "PNG")
    upload = web.post("/api/uploads", files={"file": ("../../x.png", data.getvalue(), "text/html")}).json()
    assert (upload["width"], upload["height"]) == (80, 60)
    told = found(web, terms=[{"id": upload["id"]}], top=3)["results"]
    direct = index.search(picture(80, 60, seed=77), 3).results
    np.testing.assert_allclose([r["score"] for r in told], [r.score for r in direct], atol=1e-5)
    shown = web.get(f"/pictures/{upload['id']}", params={"size": "full"})
    assert Image.open(io.BytesIO(shown.content)).size == (80, 60)
    explained = web.get("/api/explain", params={"id": upload["id"], "sentence": "two dog"})
    assert explained.json()["size"] == [80, 60]
    assert found(web, terms=[{"id": upload["id"]}], kind="sentence")["results"][0]["kind"] == "sentence"


def test_a_picture_whose_file_is_gone_is_still_a_query(web: TestClient, album: Path) -> None:
    id = id_of(web, "album/003.png")
    (album / "003.png").unlink()
    results = found(web, terms=[{"id": id}], top=1)["results"]
    assert results[0]["path"] == "album/003.png"
    assert web.get(f"/pictures/{id}").status_code == 404
    assert web.get("/api/explain", params={"id": id, "sentence": "a dog"}).status_code == 404


# Bad queries.


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, "terms: expected at least one"),
        ({"terms": [{"text": "dog", "weight": -1}]}, "terms: expected at least one"),
        ({"terms": [{"text": "  "}]}, "terms.0"),
        ({"terms": [{"text": "dog", "id": "x"}]}, "terms.0"),
        ({"terms": [{"text": "dog"}], "tpo": 1}, "tpo: Extra inputs are not permitted"),
        ({"terms": [{"text": "dog"}], "top": 0}, "top: "),
        ({"terms": [{"text": "dog"}], "top": 10**9}, "top: "),
        ({"terms": [{"text": "dog", "weight": 1e308}]}, "terms.0"),
        ({"terms": [{"text": "dog" * 999}]}, "terms.0"),
        ({"terms": [{"text": "dog"}] * 99}, "terms: "),
        ({"terms": [{"text": "dog"}], "where": ["stars"]}, "filter 'stars'"),
        ({"terms": [{"text": "dog"}], "where": ["date>=yesterday"]}, "date 'yesterday'"),
        ({"terms": [{"text": "dog"}], "where": ["date=9999"]}, "date"),
        ({"terms": [{"text": "dog"}], "where": ["date<0001-01-01"]}, "date"),
        ({"terms": [{"text": "dog"}], "path": "*a" * 20}, "at most 4 stars"),
        ({"terms": [{"text": "\ud800"}]}, "terms.0"),
    ],
)
def test_what_is_wrong_is_said(steady: TestClient, asked: dict[str, Any], sentence: str) -> None:
    answer = steady.post("/api/search", content=json.dumps(asked), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]
    assert answer.json().keys() == {"error"}


@pytest.mark.parametrize("id", ["x", "upload-none", "../../etc/passwd", "%2e%2e%2fsecret", "A" * 60, "é"])
def test_ids_that_are_none(steady: TestClient, id: str) -> None:
    assert steady.post("/api/search", json={"terms": [{"id": id}]}).status_code == 404
    assert steady.get(f"/pictures/{id}").status_code == 404
    assert steady.get("/api/explain", params={"id": id, "sentence": "a dog"}).status_code == 404
    assert steady.post("/api/rerank", json={"query": "a dog", "ids": [id]}).status_code == 404


@pytest.mark.parametrize("line", ["+ dog - @/etc/passwd", "+ @~root/a.png", "+ @~nosuchuser/x", "+ 2:@secret.png"])
def test_a_line_names_no_file_of_this_machine(
    steady: TestClient, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    picture().save("secret.png")
    assert steady.get("/api/search", params={"q": line}).status_code in (404, 422)


@pytest.mark.parametrize(
    "line", ["+ - dog", "- dog", "+ dog -", "+ 99999:dog", "+ " + "9" * 400 + ":dog", "+ a" + " + a" * 30]
)
def test_lines_that_mean_nothing(steady: TestClient, line: str) -> None:
    assert steady.get("/api/search", params={"q": line}).status_code == 422


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b"null", b"[]", b'"x"', b"{}" * 9, b"NaN"])
def test_bodies_that_are_no_json(steady: TestClient, body: bytes) -> None:
    answer = steady.post("/api/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json().keys() == {"error"}


def test_addresses_that_are_none(steady: TestClient) -> None:
    assert steady.get("/api/none").json() == {"error": "there is nothing at this address"}
    assert (steady.put("/api/search").status_code, steady.put("/api/search").json().keys()) == (405, {"error"})
    assert steady.get("/static/../app.py").status_code == 404
    assert steady.get("/static/%2e%2e/app.py").status_code == 404


# Pictures.


def test_pictures_are_shown_in_some_sizes(web: TestClient, index: Index, album: Path) -> None:
    picture(1000, 500, seed=99).save(album / "big.jpg")
    index.sync(album.parent, what="both")
    id = id_of(web, "album/big.jpg")
    sizes = {}
    for size in ("160", "320", "640", "full"):
        answer = web.get(f"/pictures/{id}", params={"size": size})
        assert answer.headers["content-type"] == "image/jpeg"
        sizes[size] = Image.open(io.BytesIO(answer.content)).size
    assert sizes == {"160": (160, 80), "320": (320, 160), "640": (640, 320), "full": (1000, 500)}
    assert web.get(f"/pictures/{id}").content == web.get(f"/pictures/{id}", params={"size": "320"}).content
    assert web.get(f"/pictures/{id}", params={"size": "99999"}).status_code == 422


def test_a_changed_picture_is_shown_anew(web: TestClient, index: Index, album: Path) -> None:
    id = id_of(web, "album/003.png")
    before = web.get(f"/pictures/{id}").content
    picture(70, 30, seed=55).save(album / "003.png")
    index.sync(album.parent, what="both")
    assert web.get(f"/pictures/{id}").content != before


def test_only_what_is_in_the_index_is_shown(web: TestClient, app: FastAPI, index: Index, album: Path) -> None:
    ids = app.state.service.ids
    picture().save(album / "later.png")
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 404
    index.sync(album.parent, what="both")
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 200
    index.delete([str(album / "later.png")])
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 404
    assert web.get(f"/pictures/{ids.of(str(album.parent / 'words.txt') + '#1')}").status_code == 404


def test_links_out_of_the_folder_are_not_shown(web: TestClient, index: Index, album: Path, tmp_path: Path) -> None:
    picture(seed=66).save(tmp_path / "secret.png")
    (album / "link.png").symlink_to(tmp_path / "secret.png")
    index.sync(album.parent, what="both")  # which follows links to files
    id = id_of(web, "album/link.png")
    assert web.get(f"/pictures/{id}").status_code == 404
    assert web.get("/api/explain", params={"id": id, "sentence": "a dog"}).status_code == 404
    found(web, terms=[{"id": id}])  # its vector is in the index and may be searched with


def test_a_picture_that_became_a_link_is_not_shown(web: TestClient, album: Path, tmp_path: Path) -> None:
    id = id_of(web, "album/003.png")
    assert web.get(f"/pictures/{id}").status_code == 200
    picture(seed=66).save(tmp_path / "secret.png")
    (album / "003.png").unlink()
    (album / "003.png").symlink_to(tmp_path / "secret.png")
    assert web.get(f"/pictures/{id}").status_code == 404


def test_members_of_archives_are_shown(web: TestClient, index: Index, album: Path) -> None:
    data = io.BytesIO()
    picture(40, 30, seed=31).save(data, "PNG")
    with tarfile.open(album / "more.tar", "w") as archive:
        info = tarfile.TarInfo("inside/one.png")
        info.size = len(data.getvalue())
        archive.addfile(info, io.BytesIO(data.getvalue()))
    index.sync(album.parent, what="both", archives=True)
    id = id_of(web, "album/more.tar#inside/one.png")
    assert Image.open(io.BytesIO(web.get(f"/pictures/{id}").content)).size == (40, 30)
    assert found(web, terms=[{"id": id}], top=1)["results"][0]["id"] == id


def test_roots_can_be_narrowed(index: Index, tmp_path: Path) -> None:
    app = create_app(Settings(token=TOKEN, roots=(str(tmp_path / "elsewhere"),)), index)
    results = found(client(app), terms=[{"text": "a dog"}], top=1)["results"]
    assert results[0]["picture"] is None
    assert client(app).get(f"/pictures/{results[0]['id']}").status_code == 404


# Explaining, re-ranking, embedding.


def test_explanations_are_those_of_the_models(web: TestClient, album: Path, vse_folder: str, camp_folder: str) -> None:
    id = id_of(web, "album/003.png")
    for model, folder in (("fast", vse_folder), ("reranker", camp_folder)):
        told = web.get("/api/explain", params={"id": id, "sentence": "two dog", "model": model}).json()
        direct = explain(Matcher.from_pretrained(folder), album / "003.png", "two dog")
        assert told["words"] == ["two", "dog"]
        assert told["score"] == pytest.approx(direct.score, abs=1e-5)
        for name in ("looks", "answers", "whole", "strength"):
            shown = getattr(direct, name)()
            assert told[name]["name"] == shown[0]
            np.testing.assert_allclose(told[name]["values"], shown[1], atol=1e-5)
        assert told["arrays"].keys() == direct.arrays().keys()


def test_explanations_have_limits(web: TestClient) -> None:
    id = id_of(web, "album/003.png")
    many = web.get("/api/explain", params={"id": id, "sentence": "a " * 60})
    assert (many.status_code, "at most 40" in many.json()["error"]) == (422, True)
    assert web.get("/api/explain", params={"id": id, "sentence": "a", "model": "none"}).status_code == 422
    sentence = found(web, terms=[{"text": "dog"}], kind="sentence")["results"][0]["id"]
    assert web.get("/api/explain", params={"id": sentence, "sentence": "a"}).status_code == 422


def test_re_ranking_scores_are_the_models(web: TestClient, album: Path, camp_folder: str) -> None:
    names = ["album/001.png", "album/002.png", "album/005.png"]
    ids = [id_of(web, name) for name in names]
    told = web.post("/api/rerank", json={"query": "two dog", "ids": ids}).json()
    scores = Matcher.from_pretrained(camp_folder).similarity([album.parent / name for name in names], ["two dog"])[:, 0]
    order = scores.argsort(descending=True).tolist()
    assert [r["id"] for r in told["results"]] == [ids[i] for i in order]
    np.testing.assert_allclose([r["score"] for r in told["results"]], scores[order], atol=1e-5)
    terms = web.post("/api/rerank", json={"terms": [{"text": "two dog"}], "ids": ids}).json()
    assert terms == told
    (album / "001.png").unlink()
    gone = web.post("/api/rerank", json={"query": "two dog", "ids": ids}).json()["results"]
    assert gone[-1] == {"id": ids[0], "score": None}
    sentence = found(web, terms=[{"text": "dog"}], kind="sentence")["results"][0]["id"]
    for wrong in (
        {"ids": ids}, {"query": "a", "terms": [{"text": "a"}], "ids": ids}, {"query": "a", "ids": []},
        {"query": "a", "ids": [ids[1], sentence]}, {"terms": [{"id": ids[1]}], "ids": ids[1:]},
    ):  # fmt: skip
        assert web.post("/api/rerank", json=wrong).status_code == 422, wrong


def test_without_a_re_ranking_model_it_is_said_so(index: Index) -> None:
    web = client(create_app(Settings(token=TOKEN), index))
    id = id_of(web, "album/003.png")
    answers = [
        web.post("/api/search", json={"terms": [{"text": "a"}], "rerank": True}),
        web.post("/api/rerank", json={"query": "a", "ids": [id]}),
        web.get("/api/explain", params={"id": id, "sentence": "a", "model": "reranker"}),
    ]
    assert [answer.status_code for answer in answers] == [422] * 3
    assert all("--rerank" in answer.json()["error"] for answer in answers)
    assert web.get("/api/overview").json()["reranker"] is None


def test_vectors_are_the_embedders(web: TestClient, index: Index, album: Path) -> None:
    texts = ["two dog", "a red boat"]
    told = web.post("/api/embed", json={"sentences": texts}).json()["vectors"]
    np.testing.assert_allclose(told, index.embedder.embed_texts(texts)[:, 0], atol=1e-6)
    told = web.post("/api/embed/picture", files={"file": (album / "002.png").read_bytes()}).json()["vectors"]
    np.testing.assert_allclose(told, index.embedder.embed_pictures([album / "002.png"])[:, 0], atol=1e-6)
    assert web.post("/api/embed", json={"sentences": ["a"] * 99}).status_code == 422


def test_models_that_keep_sets(tmp_path: Path) -> None:
    folder = tiny.save_dive(tmp_path / "dive")
    with Index.create(tmp_path / "sets.db", folder, device="cpu") as index:
        index.sync(tiny.fill(tmp_path / "pictures", 4))
        web = client(create_app(Settings(token=TOKEN), index))
        told = web.post("/api/embed", json={"sentences": ["two dog"]}).json()["vectors"]
        np.testing.assert_allclose(told, index.embedder.embed_texts(["two dog"]), atol=1e-6)
        assert len(found(web, terms=[{"text": "two dog"}, {"text": "snow", "weight": -0.5}])["results"]) == 4


def test_an_index_without_pictures_or_a_model(tmp_path: Path, vse_folder: str) -> None:
    with Index.create(tmp_path / "empty.db", vse_folder, device="cpu") as index:
        app = create_app(Settings(token=TOKEN), index)
        app.state.service.warm()
        assert found(client(app), terms=[{"text": "a dog"}])["results"] == []
        assert client(app).get("/api/overview").json()["entries"] == 0


# The server itself.


def test_it_tells_of_itself(web: TestClient) -> None:
    assert web.get("/api/overview").json() == {
        "entries": 11, "pictures": 8, "sentences": 3, "model": "vse", "reranker": "camp",
        "columns": ["album", "stars"], "credits": "by nobody",
    }  # fmt: skip
    assert web.get("/health").json()["status"] == "ok"


def test_metrics(web: TestClient) -> None:
    for _ in range(3):
        web.get("/api/search", params={"q": "a dog"})
    web.get("/api/search")
    web.get("/pictures/none")
    web.get("/no/such/place")
    lines = web.get("/metrics").text.splitlines()
    assert 'diptych_requests_total{method="GET",route="/api/search",status="200"} 3.0' in lines
    assert 'diptych_requests_total{method="GET",route="/api/search",status="422"} 1.0' in lines
    assert 'diptych_requests_total{method="GET",route="/pictures/{id}",status="404"} 1.0' in lines
    assert 'diptych_requests_total{method="GET",route="other",status="404"} 1.0' in lines
    assert 'diptych_request_seconds_count{route="/api/search"} 4.0' in lines
    assert 'diptych_batch_size_sum{lane="search"} 3.0' in lines
    assert 'diptych_index_entries{kind="picture"} 8.0' in lines
    assert 'diptych_waiting{lane="explain"} 0.0' in lines
    assert 'diptych_refused_total{lane="search"} 0.0' in lines


def test_ids_last(index: Index) -> None:
    one, other = (client(create_app(Settings(token=TOKEN), index)) for _ in range(2))
    assert id_of(one, "album/003.png") == id_of(other, "album/003.png")


def test_filters_that_would_take_long_or_tell_of_the_machine_are_refused(web: TestClient, album: Path) -> None:
    blanks = {"where": " " * 900_000}
    with (album / "003.png").open("rb") as file:
        answer = web.post("/api/search/picture", files={"file": ("x.png", file)}, data=blanks)
    assert answer.status_code in (413, 422)
    for asked in ({"where": ["path>=/home/a"]}, {"path": "/home/*"}):
        assert web.post("/api/search", json={"terms": [{"text": "a dog"}], **asked}).status_code == 422


def test_a_sentence_that_is_too_long_is_refused_however_it_is_typed(web: TestClient) -> None:
    assert web.get("/api/search", params={"q": "a " * 400}).status_code == 422
    assert web.get("/api/search", params={"q": "a " * 200}).status_code == 200
