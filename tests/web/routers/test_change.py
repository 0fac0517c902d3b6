"""Adding and deleting, through the API."""

import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["index", "own_folders", "vse_folder"]


@pytest.fixture
def app(index: Index, tmp_path: Path) -> Iterator[FastAPI]:
    app = create_app(ServerSettings(token=TOKEN, uploads=tmp_path / "kept"), index)
    yield app
    app.state.service.close()


@pytest.fixture
def web(app: FastAPI) -> TestClient:
    return client(app, TOKEN)


def data_of(seed: int, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    picture(64, 48, seed).save(data, kind)
    return data.getvalue()


def add(web: TestClient, *files: tuple[str, bytes], **form: Any) -> Any:
    return web.post("/api/add", files=[("file", file) for file in files], data=form)


def test_added_pictures_are_found_and_shown(web: TestClient, index: Index, tmp_path: Path) -> None:
    before = len(index)
    answer = add(web, ("dog.png", data_of(900)), ("boat.jpg", data_of(901, "JPEG")), metadata='{"stars": 5}')
    assert answer.status_code == 200, answer.text
    added = answer.json()["added"]
    assert answer.json()["entries"] == before + 2
    result = web.post("/api/search", json={"terms": [{"id": added[0]["id"]}], "top": 1}).json()["results"][0]
    assert result["id"] == added[0]["id"]
    assert result["score"] == pytest.approx(1, abs=1e-5)
    told = result["metadata"]
    assert {name: told[name] for name in ("name", "stars", "width", "height")} == {
        "name": "dog.png", "stars": 5, "width": 64, "height": 48,
    }  # fmt: skip
    assert Image.open(io.BytesIO(web.get(result["picture"]).content)).size == (64, 48)
    assert sorted(path.suffix for path in (tmp_path / "kept").glob("[!.]*")) == [".jpg", ".png"]
    assert web.get("/api/overview").json()["pictures"] == 10


def test_an_uploads_folder_can_be_indexed_again(web: TestClient, index: Index, tmp_path: Path) -> None:
    add(web, ("dog.png", data_of(900)))
    report = index.sync(tmp_path / "kept")
    assert (report.added, report.changed, report.deleted, report.unchanged) == (0, 0, 0, 1)


def test_twice_the_same_is_once(web: TestClient, index: Index, tmp_path: Path) -> None:
    first = add(web, ("dog.png", data_of(900)))
    second = add(web, ("../../other name.gif", data_of(900)), ("x", data_of(900)))
    assert {entry["id"] for entry in second.json()["added"]} == {first.json()["added"][0]["id"]}
    assert second.json()["entries"] == first.json()["entries"] == len(index)
    assert len(list((tmp_path / "kept").glob("[!.]*"))) == 1


def test_names_say_nothing_about_places(web: TestClient, tmp_path: Path) -> None:
    names = ["../../../evil.png", "/etc/evil.png", "..\\..\\evil.png", "evil.png\x00.sh", "a" * 999]
    before = {path for path in tmp_path.rglob("*") if "kept" not in path.parts}
    for number, name in enumerate(names):
        assert add(web, (name, data_of(900 + number))).status_code == 200
    after = {path for path in tmp_path.rglob("*") if "kept" not in path.parts}
    assert {path.name for path in after - before} <= {"index.db-wal", "index.db-shm"}
    assert {len(path.stem) for path in (tmp_path / "kept").glob("[!.]*")} == {32}


def test_what_is_no_picture_leaves_nothing_behind(web: TestClient, index: Index, tmp_path: Path) -> None:
    before = len(index)
    whole = data_of(902)
    for files in (
        [("a.png", data_of(900)), ("b.png", b"not a picture")],
        [("a.png", data_of(900)), ("b.png", whole[: len(whole) // 2])],
        [("a.png", b"")],
    ):
        refused = add(web, *files)
        assert refused.status_code == 422
        assert refused.json()["error"].startswith("file: ")
        assert len(index) == before
        assert not any((tmp_path / "kept").glob("[!.]*"))


def test_columns_that_cannot_be(web: TestClient, index: Index, tmp_path: Path) -> None:
    before = len(index)
    for metadata in (
        "[]", "{", "1", '{"a": null}', '{"a": true}', '{"path": "x"}', '{"a": [1]}', '{"a": NaN}', '{"": 1}',
    ):  # fmt: skip
        assert add(web, ("a.png", data_of(900)), metadata=metadata).status_code == 422, metadata
        assert len(index) == before
        assert not any((tmp_path / "kept").glob("[!.]*"))


def test_deleting_takes_only_files_that_were_added_here(web: TestClient, index: Index, tmp_path: Path) -> None:
    added = add(web, ("dog.png", data_of(900))).json()["added"][0]["id"]
    (kept,) = (tmp_path / "kept").glob("[!.]*")
    results = web.post("/api/search", json={"terms": [{"text": "a dog"}], "top": 99}).json()["results"]
    indexed = next(r for r in results if r["path"] == "album/003.png")["id"]
    before = len(index)
    assert web.delete(f"/api/entries/{added}").json() == {"deleted": 1, "entries": before - 1}
    assert not kept.exists()
    assert web.delete(f"/api/entries/{indexed}").json()["deleted"] == 1
    assert (tmp_path / "pictures/album/003.png").exists()
    for id in (added, indexed, "none"):
        assert web.delete(f"/api/entries/{id}").status_code == 404
        assert web.get(f"/pictures/{id}").status_code == 404


def test_sentences_are_added_and_replaced(web: TestClient, index: Index) -> None:
    before = len(index)
    answer = web.post("/api/add/sentences", json={"sentences": {"one": "a big blue boat", "two": "a red cat"}})
    assert answer.json()["entries"] == before + 2
    assert [entry["path"] for entry in answer.json()["added"]] == ["added/one", "added/two"]
    again = web.post("/api/add/sentences", json={"sentences": {"one": "three small cat"}})
    assert (again.json()["entries"], again.json()["added"][0]["id"]) == (before + 2, answer.json()["added"][0]["id"])
    result = web.get("/api/search", params={"q": "three small cat", "kind": "sentence", "top": 1}).json()["results"][0]
    assert (result["text"], result["id"]) == ("three small cat", again.json()["added"][0]["id"])
    assert web.delete(f"/api/entries/{result['id']}").json()["entries"] == before + 1


def test_a_sentence_cannot_take_a_pictures_place(web: TestClient, index: Index, tmp_path: Path) -> None:
    key = str(tmp_path / "pictures/album/003.png")
    web.post("/api/add/sentences", json={"sentences": {key: "a dog", "../x": "a cat"}})
    entry = index.store.get([key])[0]
    assert entry is not None
    assert entry.kind == "picture"


def test_sentences_that_cannot_be(web: TestClient, index: Index) -> None:
    before = len(index)
    wrong: list[dict[str, Any]] = [{}, {"": "a"}, {"a": ""}, {"a": " "}, {"a\x00": "b"}, {"a": "b" * 999}, {"a": 1}]
    for sentences in wrong:
        assert web.post("/api/add/sentences", json={"sentences": sentences}).status_code == 422, sentences
    assert len(index) == before


def test_after_many_changes_confidences_are_worked_out_again(web: TestClient, index: Index, app: FastAPI) -> None:
    def law() -> str:
        return index.store.properties["background:sentence"]

    before = law()
    for part in range(3):
        web.post("/api/add/sentences", json={"sentences": {f"{part}-{i}": f"a dog {i}" for i in range(10)}})
    assert law() != before


def test_the_file_is_whole_when_the_server_ends(index: Index, tmp_path: Path) -> None:
    app = create_app(ServerSettings(token=TOKEN, uploads=tmp_path / "kept"), index)
    with client(app, TOKEN) as web:
        add(web, ("dog.png", data_of(900)))
    with sqlite3.connect(index.store.address) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        keys = {row[0] for row in db.execute("SELECT key FROM entries")}
    assert {str(path) for path in (tmp_path / "kept").glob("[!.]*")} <= keys


def test_an_own_picture_in_the_uploads_folder_is_never_removed(web: TestClient, index: Index, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(exist_ok=True)
    (tmp_path / "kept" / "holiday.png").write_bytes(data_of(930))
    index.sync(tmp_path / "kept")
    results = web.post("/api/search", json={"terms": [{"text": "a dog"}], "top": 100}).json()["results"]
    id = next(result["id"] for result in results if result["path"].endswith("holiday.png"))
    assert web.delete(f"/api/entries/{id}").status_code == 200
    assert (tmp_path / "kept" / "holiday.png").exists()


def test_a_number_beyond_all_bounds_is_refused(web: TestClient, index: Index) -> None:
    before = len(index)
    answer = add(web, ("dog.png", data_of(931)), metadata='{"a": 1' + "0" * 400 + "}")
    assert (answer.status_code, len(index)) == (422, before)
