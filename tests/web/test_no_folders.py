"""Whatever breaks behind the server, no answer of it tells a folder of its machine."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.service import holdings
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import camp_folder, index, own_folders, vse_folder
from tests.web.serving import TOKEN

__all__ = ["camp_folder", "index", "own_folders", "vse_folder"]


@dataclass(frozen=True)
class Place:
    """A server's machine, as this test may break it."""

    web: TestClient
    id: str
    folder: Path


def delete_the_index(place: Place) -> None:
    for path in place.folder.glob("index.db*"):
        path.unlink()


def overwrite_the_index(place: Place) -> None:
    (place.folder / "index.db").write_bytes(b"no index at all" * 1000)


def overwrite_the_pictures(place: Place) -> None:
    for path in (place.folder / "pictures").rglob("*.png"):
        path.write_bytes(b"no picture")


def delete_the_pictures(place: Place) -> None:
    for path in (place.folder / "pictures").rglob("*.png"):
        path.unlink()


def take_the_uploads_folder(place: Place) -> None:
    (place.folder / "index.uploads").write_text("a file in its place")


BREAKS = [delete_the_index, overwrite_the_index, overwrite_the_pictures, delete_the_pictures, take_the_uploads_folder]


@pytest.fixture
def place(index: Index, camp_folder: str, tmp_path: Path) -> Iterator[Place]:
    app = create_app(ServerSettings(token=TOKEN, rerank=camp_folder), index)
    web = TestClient(app, "http://127.0.0.1", False, headers={"Authorization": f"Bearer {TOKEN}"})
    id = web.post("/api/search", json={"terms": [{"text": "a dog"}], "top": 1}).json()["results"][0]["id"]
    yield Place(web, id, tmp_path)
    app.state.service.close()


def png() -> bytes:
    data = io.BytesIO()
    picture(40, 30, seed=99).save(data, "png")
    return data.getvalue()


@pytest.mark.parametrize("counted", [True, False], ids=["counted before", "counted now"])
@pytest.mark.parametrize("broken", BREAKS)
def test_no_answer_tells_a_folder(
    place: Place, broken: Callable[[Place], None], counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, id = place.web, place.id
    monkeypatch.setattr(holdings, "COUNT_AGAIN", 1000.0 if counted else -1.0)
    web.get("/")
    broken(place)
    answers = [
        web.get("/"),
        web.get("/", params={"q": "a dog"}),
        web.get("/why", params={"id": id, "sentence": "a dog"}),
        web.get("/api/search", params={"q": "a dog"}),
        web.post("/api/search", json={"terms": [{"text": "a dog"}], "rerank": True}),
        web.post("/api/search", json={"terms": [{"picture": id}]}),
        web.post("/api/rerank", json={"query": "a dog", "ids": [id]}),
        web.get("/api/explain", params={"id": id, "sentence": "a dog"}),
        web.get(f"/pictures/{id}"),
        web.get(f"/pictures/{id}", params={"size": "full"}),
        web.get("/api/overview"),
        web.post("/api/add", files={"file": ("x.png", png(), "image/png")}),
        web.post("/api/add/sentences", json={"sentences": {"x": "a dog"}}),
        web.delete(f"/api/entries/{id}"),
        web.get("/metrics"),
    ]
    assert any(answer.status_code >= 400 for answer in answers)
    for answer in answers:
        assert str(place.folder) not in answer.text, f"{answer.request.url}: {answer.text}"
        assert str(place.folder.parent) not in answer.text, f"{answer.request.url}: {answer.text}"
