import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from diptych.matchers.base import Matcher
from diptych.search.asking.query import Term
from diptych.search.asking.rerank import Rerank
from diptych.search.index import Index
from diptych.search.stores.store import Condition
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import camp_folder, index, own_folders, unchanged_index, vse_folder
from tests.web.routers.asking import album, app, id_of, searched, steady, web
from tests.web.serving import TOKEN, client

__all__ = ["album", "app", "camp_folder", "index", "own_folders", "steady", "unchanged_index", "vse_folder", "web"]


def test_an_index_made_again_or_deleted_under_the_server(
    web: TestClient, index: Index, vse_folder: str, tmp_path: Path
) -> None:
    path = Path(index.store.address)
    kept = [entry for entry in index.store.get([stamp.key for stamp in index.store.stamps()]) if entry is not None]
    searched(web, terms=[{"text": "two dog"}])
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    gone = web.post("/api/search", json={"terms": [{"text": "two dog"}]})
    assert gone.status_code == 503
    assert gone.json()["error"].startswith(f"{path.name}: no such index any more")
    assert not path.exists()
    fewer = [entry for entry in kept if entry.kind == "picture"][:3]
    with Index.create(path, vse_folder) as again:
        again.store.add(fewer)
        told = searched(web, terms=[{"text": "two dog"}], top=50)
        direct = again.search("two dog", 50)
    assert len(told["results"]) == 3
    np.testing.assert_allclose([r["score"] for r in told["results"]], [r.score for r in direct.results], atol=1e-5)


def test_a_sentence_finds_what_the_index_finds(web: TestClient, index: Index, tmp_path: Path) -> None:
    told = searched(web, terms=[{"text": "two dog"}], top=5)
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
    assert by_line == searched(web, terms=[{"text": "two dog"}], top=4)["results"]
    id = id_of(web, "album/003.png")
    by_line = web.get("/api/search", params={"q": f"+ 2:two dog - @{id}", "top": 4}).json()["results"]
    direct = index.search([Term("two dog", 2.0), Term(album / "003.png", -1.0)], 4)
    assert [r["path"] for r in by_line] == [f"album/{Path(r.key).name}" for r in direct.results]


def test_terms_add_up(web: TestClient, index: Index, album: Path) -> None:
    id = id_of(web, "album/003.png")
    terms = [{"text": "two dog"}, {"id": id, "weight": -0.5}, {"text": "snow", "weight": 2}]
    told = searched(web, terms=terms, top=6)["results"]
    direct = index.search([Term("two dog"), Term(album / "003.png", -0.5), Term("snow", 2.0)], 6)
    assert [r["path"] for r in told] == [f"album/{Path(r.key).name}" for r in direct.results]
    np.testing.assert_allclose([r["score"] for r in told], [r.score for r in direct.results], atol=1e-5)


def test_filters_and_patterns(web: TestClient, index: Index) -> None:
    told = searched(web, terms=[{"text": "a dog"}], where=["stars>=3", "album=holiday"], path="album/*", top=50)[
        "results"
    ]
    assert {r["metadata"]["stars"] for r in told} == {3, 4}
    assert len(told) == index.count([Condition("stars", ">=", 3)])
    assert searched(web, terms=[{"text": "a dog"}], path="elsewhere/*")["results"] == []
    told = web.get("/api/search", params={"q": "a dog", "where": ["stars>=3", "stars<4"]}).json()["results"]
    assert {r["metadata"]["stars"] for r in told} == {3}


def test_sentences_are_found_and_stand_for_themselves(web: TestClient, index: Index) -> None:
    told = searched(web, terms=[{"text": "two dog"}], kind="sentence")["results"]
    assert (told[0]["text"], told[0]["picture"], len(told)) == ("two dog", None, 3)
    assert told[0]["path"] == "words.txt#1"
    by_sentence = searched(web, terms=[{"id": told[0]["id"]}], top=4)["results"]
    assert [r["score"] for r in by_sentence] == [
        r["score"] for r in searched(web, terms=[{"text": "two dog"}], top=4)["results"]
    ]


def test_thresholds_and_groups(web: TestClient, album: Path, index: Index) -> None:
    id = id_of(web, "album/003.png")
    assert [r["path"] for r in searched(web, terms=[{"id": id}], threshold=0.999)["results"]] == ["album/003.png"]
    assert searched(web, terms=[{"text": "two dog"}], least_confidence=1.0)["results"] == []
    with Image.open(album / "003.png") as image:
        image.save(album / "copy.png")
    index.sync(album.parent, what="both")
    told = searched(web, terms=[{"id": id}], group=0.99999, top=1)["results"][0]
    both = {told["path"], *(other["path"] for other in told["duplicates"])}
    assert both == {"album/003.png", "album/copy.png"}
    assert web.get(f"/pictures/{told['duplicates'][0]['id']}").status_code == 200


def test_re_ranking_says_what_moved(web: TestClient, index: Index, camp_folder: str) -> None:
    told = searched(web, terms=[{"text": "two dog"}], rerank=True, depth=8, top=8, fusion="replace")["results"]
    first = [r.key for r in index.search("two dog", 8).results]
    direct = index.search("two dog", 8, rerank=Rerank(camp_folder, 8, "replace")).results
    assert [r["path"] for r in told] == [f"album/{Path(r.key).name}" for r in direct]
    assert [r["place_before"] for r in told] == [first.index(r.key) + 1 for r in direct]
    assert all(r["score"] == r["rerank"] != r["retrieval"] for r in told)
    sums = searched(web, terms=[{"text": "two dog"}], rerank=True, depth=3, top=8)["results"]
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
    told = searched(web, terms=[{"id": upload["id"]}], top=3)["results"]
    direct = index.search(picture(80, 60, seed=77), 3).results
    np.testing.assert_allclose([r["score"] for r in told], [r.score for r in direct], atol=1e-5)
    shown = web.get(f"/pictures/{upload['id']}", params={"size": "full"})
    assert Image.open(io.BytesIO(shown.content)).size == (80, 60)
    explained = web.get("/api/explain", params={"id": upload["id"], "sentence": "two dog"})
    assert explained.json()["size"] == [80, 60]
    assert searched(web, terms=[{"id": upload["id"]}], kind="sentence")["results"][0]["kind"] == "sentence"


def test_a_picture_whose_file_is_gone_is_still_a_query(web: TestClient, album: Path) -> None:
    id = id_of(web, "album/003.png")
    (album / "003.png").unlink()
    results = searched(web, terms=[{"id": id}], top=1)["results"]
    assert results[0]["path"] == "album/003.png"
    assert web.get(f"/pictures/{id}").status_code == 404
    assert web.get("/api/explain", params={"id": id, "sentence": "a dog"}).status_code == 404


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
    never = id_of(web, "album/003.png")  # not rescored so far, so that nothing of it is remembered
    (album / "001.png").unlink()
    (album / "003.png").unlink()
    gone = web.post("/api/rerank", json={"query": "two dog", "ids": [*ids, never]}).json()["results"]
    assert gone == [*told["results"], {"id": never, "score": None}]
    sentence = searched(web, terms=[{"text": "dog"}], kind="sentence")["results"][0]["id"]
    for wrong in (
        {"ids": ids}, {"query": "a", "terms": [{"text": "a"}], "ids": ids}, {"query": "a", "ids": []},
        {"query": "a", "ids": [ids[1], sentence]}, {"terms": [{"id": ids[1]}], "ids": ids[1:]},
    ):  # fmt: skip
        assert web.post("/api/rerank", json=wrong).status_code == 422, wrong


def test_without_a_re_ranking_model_it_is_said_so(index: Index) -> None:
    web = client(create_app(ServerSettings(token=TOKEN), index))
    id = id_of(web, "album/003.png")
    answers = [
        web.post("/api/search", json={"terms": [{"text": "a"}], "rerank": True}),
        web.post("/api/rerank", json={"query": "a", "ids": [id]}),
        web.get("/api/explain", params={"id": id, "sentence": "a", "model": "reranker"}),
    ]
    assert [answer.status_code for answer in answers] == [422] * 3
    assert all("--rerank" in answer.json()["error"] for answer in answers)
    assert web.get("/api/overview").json()["reranker"] is None


def test_an_index_without_pictures_or_a_model(tmp_path: Path, vse_folder: str) -> None:
    with Index.create(tmp_path / "empty.db", vse_folder, device="cpu") as index:
        app = create_app(ServerSettings(token=TOKEN), index)
        app.state.service.warm()
        assert searched(client(app), terms=[{"text": "a dog"}])["results"] == []
        assert client(app).get("/api/overview").json()["entries"] == 0


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


def test_a_list_goes_on_where_it_ended(steady: TestClient) -> None:
    whole = searched(steady, terms=[{"text": "a dog"}], top=8)
    assert not whole["more"]
    found, offset, more = [], 0, True
    while more:
        part = searched(steady, terms=[{"text": "a dog"}], top=3, offset=offset)
        found += part["results"]
        offset, more = offset + 3, part["more"]
    assert found == whole["results"]
    assert searched(steady, terms=[{"text": "a dog"}], offset=50)["results"] == []
    line = steady.get("/api/search", params={"q": "a dog", "top": 2, "offset": 4}).json()
    assert line["results"] == whole["results"][4:6]


def test_a_stretch_of_a_list_is_sorted_by_itself(steady: TestClient) -> None:
    best = [found["path"] for found in searched(steady, terms=[{"text": "a dog"}], top=6)["results"]]
    for offset in (0, 3):
        part = searched(steady, terms=[{"text": "a dog"}], top=3, offset=offset, sort="-path")["results"]
        assert [found["path"] for found in part] == sorted(best[offset : offset + 3], reverse=True)


def test_a_list_has_an_end(steady: TestClient) -> None:
    assert steady.get("/api/search", params={"q": "a dog", "offset": 2000}).status_code == 422
    last = steady.get("/api/search", params={"q": "a dog", "offset": 1999, "top": 200})
    assert (last.status_code, last.json()["more"]) == (200, False)


def test_what_is_not_sure_enough_is_counted(steady: TestClient) -> None:
    plain = searched(steady, terms=[{"text": "a dog"}], top=4)
    confidences = [found["confidence"] for found in plain["results"]]
    assert (plain["left_out"], plain["best"]) == (0, max(searched_confidences(steady)))
    least = sorted(confidences)[2]
    some = searched(steady, terms=[{"text": "a dog"}], top=4, least_confidence=least)
    assert [found["confidence"] for found in some["results"]] == [c for c in confidences if c >= least]
    assert some["left_out"] == sum(c < least for c in confidences)
    assert some["best"] == plain["best"]


def searched_confidences(steady: TestClient) -> list[float]:
    # One more than is told is looked at, to know whether the list goes on.
    return [found["confidence"] for found in searched(steady, terms=[{"text": "a dog"}], top=5)["results"]]


def test_moves_are_the_same_on_every_page_of_a_list(steady: TestClient) -> None:
    whole = searched(steady, terms=[{"text": "a red dog"}], top=8, rerank=True)["results"]
    assert sorted(place + found["moved"] for place, found in enumerate(whole)) == list(range(8))
    part = searched(steady, terms=[{"text": "a red dog"}], top=3, offset=3, rerank=True)["results"]
    assert [found["moved"] for found in part] == [found["moved"] for found in whole[3:6]]


def test_signs_between_words_add_and_take_away(steady: TestClient) -> None:
    typed = steady.get("/api/search", params={"q": "dog + 2:boat - snow"}).json()
    terms = [{"text": "dog"}, {"text": "boat", "weight": 2}, {"text": "snow", "weight": -1}]
    assert typed["results"] == searched(steady, terms=terms)["results"]
