"""Ready is what can answer: /ready says no where a search would fail, and yes again when it would not."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.service import readiness
from diptych.web.settings import ServerSettings
from tests.search import tiny
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import TOKEN, client, small_index

__all__ = ["index", "own_folders", "vse_folder"]


@pytest.fixture
def app(index: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[FastAPI]:
    monkeypatch.setattr(readiness, "GOOD_FOR", -1.0)  # every time a look of its own
    app = create_app(ServerSettings(host="0.0.0.0", token=TOKEN, queue=1, batch=1), index)
    yield app
    app.state.service.close()


def told(app: FastAPI) -> tuple[int, str]:
    answer = client(app, host="pictures.example").get("/ready")  # which needs no token
    return answer.status_code, answer.json().get("error", answer.json().get("status"))


def test_not_before_the_models_are_loaded(app: FastAPI) -> None:
    assert told(app) == (503, "the models are being loaded")
    assert client(app, host="pictures.example").get("/health").status_code == 200
    app.state.service.warm()
    assert told(app) == (200, "ready")


def test_not_while_the_index_is_away_or_another_models(
    app: FastAPI, index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app.state.service.warm()
    path = tmp_path / "index.db"
    path.rename(tmp_path / "away.db")
    broken = (503, "the index cannot be searched")  # and no word of where it is: anybody may ask
    capsys.readouterr()
    assert [told(app), told(app)] == [broken, broken]
    reason = "index.db: no such index any more: it was deleted or moved while it was open\n"
    said = capsys.readouterr().err
    assert said.startswith("note: the index cannot be searched: ")
    assert said.endswith(reason)
    assert said.count("\n") == 1  # once, however often it is asked
    other = tiny.save_dive(tmp_path / "dive")
    (tmp_path / "other").mkdir()
    small_index(tmp_path / "other", other).close()
    (tmp_path / "other" / "index.db").rename(path)
    assert told(app) == broken
    assert "index.db: replaced while it was open by an" in capsys.readouterr().err
    text = client(app, TOKEN).get("/metrics").text
    assert "diptych_ready 0.0" in text
    (tmp_path / "away.db").rename(path)
    assert told(app) == (200, "ready")
    assert "diptych_ready 1.0" in client(app, TOKEN).get("/metrics").text


def test_not_while_no_further_search_may_wait(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    service = app.state.service
    service.warm()
    began, go = threading.Event(), threading.Event()
    search = service.index.searcher.search

    def slow(*arguments: object) -> object:
        began.set()
        assert go.wait(30)
        return search(*arguments)

    monkeypatch.setattr(service.index.searcher, "search", slow)
    threads = [threading.Thread(target=client(app, TOKEN).get, args=["/api/search?q=dog"]) for _ in range(2)]
    threads[0].start()
    assert began.wait(30)
    threads[1].start()
    while not service.lanes.full:
        time.sleep(0.01)
    assert told(app) == (503, "as many searches are waiting as may wait")
    assert client(app, TOKEN).get("/health").status_code == 200
    go.set()
    for thread in threads:
        thread.join()
    assert told(app) == (200, "ready")


def test_a_look_that_does_not_come_back_is_a_no(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    service, go = app.state.service, threading.Event()
    service.warm()
    monkeypatch.setattr("diptych.web.routers.server.LOOK_WITHIN", 0.05)
    monkeypatch.setattr(type(service.index.store), "background", lambda *_: go.wait(30))
    assert told(app) == (503, "the index did not answer within 5 seconds")
    go.set()


def test_a_fault_of_the_store_is_told_without_its_insides(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app.state.service.warm()
    monkeypatch.setattr(type(app.state.service.index.store), "background", lambda *_: 1 / 0)
    assert told(app) == (503, "the index cannot be searched")
    assert "note: the index cannot be searched: ZeroDivisionError: division by zero\n" in capsys.readouterr().err
