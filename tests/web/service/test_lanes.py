"""Many at once, and some of them slow: through a real server, with threads as clients."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.service import service as service_module
from diptych.web.settings import ServerSettings
from tests.web.models import camp_folder, own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, serving

__all__ = ["camp_folder", "own_folders", "unchanged_index", "vse_folder"]
WORDS = "a red blue big small dog cat boat sits runs left of the on and two three snow grass".split()


class Gate:
    """Work that goes on only when the test says so."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self.work = work
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        self.began.set()
        assert self.go.wait(30)
        return self.work(*arguments)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(48) as pool:
        yield pool


def first_id(address: str) -> str:
    answer = httpx.get(f"{address}/api/search", params={"q": "a dog", "top": 1})
    return str(answer.json()["results"][0]["id"])


def plain(answer: httpx.Response) -> list[tuple[str, float]]:
    assert answer.status_code == 200, answer.text
    return [(result["id"], result["score"]) for result in answer.json()["results"]]


def test_a_batch_answers_as_one_by_one_does(unchanged_index: Index, threads: ThreadPoolExecutor) -> None:
    lines = [" ".join(WORDS[i % 19 : i % 19 + 1 + i % 7]) or "dog" for i in range(60)]
    asked = [{"q": line, "top": 3 + i % 2, "kind": ("picture", "sentence")[i % 3 == 0]} for i, line in enumerate(lines)]
    answers = []
    for batch in (1, 32):
        settings = ServerSettings(token=TOKEN, batch=batch, batch_wait=0.02, remembered=0)
        app = create_app(settings, unchanged_index)
        with serving(unchanged_index, app=app) as address, httpx.Client(base_url=address) as web:
            answers.append(list(threads.map(lambda one, web=web: plain(web.get("/api/search", params=one)), asked)))
            metrics = web.get("/metrics").text
        count = float(metrics.split('diptych_batch_size_count{lane="search"} ')[1].split()[0])
        assert (count == 60) == (batch == 1)
        assert 'diptych_batch_size_sum{lane="search"} 60.0' in metrics
    for one, together in zip(*answers, strict=True):
        assert [id for id, _ in one] == [id for id, _ in together]
        assert [score for _, score in one] == pytest.approx([score for _, score in together], abs=1e-5)


def test_one_bad_query_of_a_batch_is_only_its_askers_trouble(
    unchanged_index: Index, threads: ThreadPoolExecutor
) -> None:
    app = create_app(ServerSettings(token=TOKEN, batch_wait=0.2), unchanged_index)
    gone = app.state.service.ids.of("gone")
    with serving(unchanged_index, app=app) as address, httpx.Client(base_url=address) as web:
        good = {"terms": [{"text": "a dog"}, {"text": "snow"}]}
        bodies = [good, {"terms": [{"id": gone}]}, good, {"terms": [{"id": "upload-none"}]}, good]
        answers = list(threads.map(lambda body: web.post("/api/search", json=body), bodies))
    assert [answer.status_code for answer in answers] == [200, 404, 200, 404, 200]
    assert plain(answers[0]) == plain(answers[2]) == plain(answers[4])


@pytest.mark.parametrize(
    ("where", "path", "body"),
    [
        ("make_explanation", "/api/explain", None),
        ("make_thumbnail", "/pictures/{id}", None),
        ("_search_alone", "/api/search", {"terms": [{"text": "a dog"}], "rerank": True}),
        ("_run_mixed", "/api/search", {"terms": [{"text": "a dog"}, {"text": "snow"}]}),
        ("add_sentences", "/api/add/sentences", {"sentences": {"x": "a dog"}}),
    ],
)
def test_what_is_slow_does_not_stop_the_others(
    unchanged_index: Index,
    camp_folder: str,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    gate = Gate(getattr(service_module.Service, where))
    monkeypatch.setattr(service_module.Service, where, lambda *arguments: gate(*arguments))
    app = create_app(ServerSettings(token=TOKEN, rerank=camp_folder), unchanged_index)
    with (
        serving(unchanged_index, app=app) as address,
        httpx.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30) as web,
    ):
        id = first_id(address)

        def slow() -> httpx.Response:
            if body is not None:
                return web.post(path, json=body)
            return web.get(path.format(id=id), params={"id": id, "sentence": "a dog"} if "explain" in path else {})

        waiting = [threads.submit(slow) for _ in range(4)]
        assert gate.began.wait(10)
        try:
            for _ in range(3):  # all of this while the slow ones hang
                assert len(plain(web.get("/api/search", params={"q": "two dog", "top": 2}))) == 2
                assert web.get("/health").status_code == 200
            assert web.get("/metrics").status_code == 200
            if "_run_mixed" not in where:
                assert plain(web.post("/api/search", json={"terms": [{"text": "a"}, {"text": "dog"}]}))
            assert not any(future.done() for future in waiting)
        finally:
            gate.go.set()
        assert [future.result(30).status_code for future in waiting] == [200] * 4


def test_a_full_queue_says_when_to_come_back(
    unchanged_index: Index, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(ServerSettings(token=TOKEN, queue=2, batch=1), unchanged_index)
    gate = Gate(app.state.service.finder.run)
    app.state.service.lanes.sentences._work = gate
    with serving(unchanged_index, app=app) as address, httpx.Client(base_url=address, timeout=30) as web:
        waiting = [threads.submit(web.get, "/api/search", params={"q": "a dog"})]
        assert gate.began.wait(10)  # the first is at work: those that follow wait
        waiting += [threads.submit(web.get, "/api/search", params={"q": "a dog"}) for _ in range(2)]
        until = time.monotonic() + 20
        while app.state.service.lanes.sentences.size < 2 and time.monotonic() < until:
            time.sleep(0.01)
        try:
            refused = web.get("/api/search", params={"q": "a dog"})
        finally:
            gate.go.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "try again" in refused.json()["error"]
        assert [future.result(30).status_code for future in waiting] == [200] * 3
        assert 'diptych_refused_total{lane="search"} 1.0' in web.get("/metrics").text


def test_what_takes_too_long_is_given_up(
    unchanged_index: Index, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(service_module.Service.make_explanation)
    monkeypatch.setattr(service_module.Service, "make_explanation", lambda *arguments: gate(*arguments))
    app = create_app(ServerSettings(token=TOKEN, timeout=0.5), unchanged_index)
    with serving(unchanged_index, app=app) as address, httpx.Client(base_url=address, timeout=30) as web:
        asked = {"id": first_id(address), "sentence": "a dog"}
        given_up = list(threads.map(lambda _: web.get("/api/explain", params=asked), range(3)))
        assert [answer.status_code for answer in given_up] == [503] * 3
        assert given_up[0].headers["retry-after"] == "5"
        gate.go.set()
        assert web.get("/api/explain", params=asked).status_code == 200
        assert app.state.service.lanes.pools["explain"].size == 0  # those that waited were dropped, not done


def test_searching_while_pictures_come_and_go(tmp_path: Path, vse_folder: str, threads: ThreadPoolExecutor) -> None:
    from tests.web.routers.test_change import data_of
    from tests.web.serving import small_index

    with small_index(tmp_path, vse_folder, sentences=False) as index:
        with (
            serving(index) as address,
            httpx.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as web,
        ):

            def change(number: int) -> int:
                added = web.post("/api/add", files={"file": data_of(number)}).json()["added"][0]["id"]
                return web.delete(f"/api/entries/{added}").status_code

            def search(number: int) -> int:
                return web.get("/api/search", params={"q": f"a dog {number}", "top": 20}).status_code

            changes = [threads.submit(change, 1000 + number) for number in range(8)]
            searches = [threads.submit(search, number) for number in range(60)]
            assert {future.result(60) for future in [*changes, *searches]} == {200}
        assert len(index) == 8
        # Beside the list of indexes that it belongs to, which is hidden, nothing is left.
        assert [file.name for file in (tmp_path / "index.uploads").iterdir() if file.name[0] != "."] == []
