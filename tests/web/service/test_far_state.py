"""An index whose state a server has to tell: whoever asks for something else does not wait for it."""

import threading

import httpx
import pytest

from diptych.search.index import Index
from diptych.search.stores.qdrant_store import QdrantStore
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import serving

__all__ = ["index", "own_folders", "vse_folder"]


def test_a_store_that_hangs_does_not_stop_the_server(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go = threading.Event(), threading.Event()
    kind = type(index.store)
    state = kind.state.fget  # type: ignore[attr-defined]

    def slow(store: object) -> object:
        asked.set()
        assert go.wait(60)
        return state(store)

    monkeypatch.setattr(kind, "state", property(slow))
    monkeypatch.setattr(kind, "state_takes_time", QdrantStore.state_takes_time)
    answers: list[httpx.Response] = []
    with serving(index) as address:

        def search() -> None:
            answers.append(httpx.get(f"{address}/api/search", params={"q": "a dog"}, timeout=60))

        thread = threading.Thread(target=search)
        thread.start()
        try:
            assert asked.wait(30)
            assert httpx.get(f"{address}/health", timeout=10).status_code == 200
        finally:
            go.set()
            thread.join()
        search()
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].json()["results"] == answers[0].json()["results"]
    assert list(answers[1].json()["timings"]) == ["total"]  # it is remembered all the same
