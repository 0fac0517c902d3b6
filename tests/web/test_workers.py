"""One real server of two worker processes: whichever of them answers, it is one server."""

import io
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from pathlib import Path

import httpx
import pytest
from PIL import Image

from diptych.cli.main import run
from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.web.service.shared import Shared
from diptych.web.settings import ServerSettings
from diptych.web.worker import Work, _end_with, _may_go, work
from diptych.web.workers import Crew, Signals
from tests.encoders.pictures import picture
from tests.web.models import own_folders, vse_folder
from tests.web.serving import TOKEN, small_index

__all__ = ["own_folders", "vse_folder"]
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="worker processes are found in /proc")
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Server:
    """The supervisor's process, where it listens, and the folder of its index."""

    process: subprocess.Popen[str]
    address: str
    place: Path

    @property
    def workers(self) -> list[int]:
        """The processes that serve."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return sorted(int(pid) for pid in found if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())

    @property
    def shared(self) -> Path:
        """The folder that the workers share."""
        return next((self.place / "tmp").glob("diptych-serve-*"))

    @contextmanager
    def only(self, worker: int) -> Iterator[httpx.Client]:
        """All requests meanwhile go to one worker: the others do not run."""
        others = [pid for pid in self.workers if pid != worker]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            with httpx.Client(base_url=self.address, timeout=30) as web:
                yield web
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    def figure(self, line: str) -> float:
        """One of Prometheus' figures, as whichever worker tells it."""
        text = httpx.get(self.address + "metrics", timeout=30).text
        return float(next((own.split()[-1] for own in text.splitlines() if own.startswith(line + " ")), "nan"))


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked for its status is a zombie."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def started(place: Path, *options: str) -> Iterator[Server]:
    (place / "tmp").mkdir()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("")  # any free name
    manager.settimeout(60)
    listens = "@" + manager.getsockname()[1:].decode()
    command = [sys.executable, "-m", "diptych", "serve", "--index", str(place / "index.db"), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--device", "cpu", "--workers", "2", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=(place / "stderr").open("w"),
        text=True,
        env=os.environ | {"DIPTYCH_TOKEN": TOKEN, "TMPDIR": str(place / "tmp"), "NOTIFY_SOCKET": listens},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (place / "stderr").read_text()
        assert manager.recv(100) == b"READY=1"
        told = json.loads(line)
        assert (told["entries"], told["token"]) == (11, None)
        yield Server(process, told["address"], place)
        assert process.stdout.read() == ""  # once for all of them
        assert manager.recv(100) == b"STOPPING=1"
    finally:
        manager.close()
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, vse_folder: str) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("workers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "home" / "cache"))
        small_index(place, vse_folder).close()
        with started(place) as server:
            yield server
            workers = server.workers
            os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C: all of them get it
            assert server.process.wait(30) == 0
            assert all(map(gone, workers))
            assert list((place / "tmp").iterdir()) == []
            said = (place / "stderr").read_text().splitlines()
            assert [line for line in said if not line.startswith(("note: worker ", "note: the index "))] == ["stopped"]


def png(width: int = 40) -> bytes:
    data = io.BytesIO()
    picture(width, 30).save(data, "PNG")
    return data.getvalue()


def found(web: httpx.Client, **asked: object) -> list[tuple[str, float]]:
    answer = web.post("/api/search", json={"top": 3, **asked})
    assert answer.status_code == 200, answer.text
    return [(result["id"], result["score"]) for result in answer.json()["results"]]


def test_each_answers_alike(server: Server) -> None:
    assert len(server.workers) == 2
    answers = []
    for worker in server.workers:
        with server.only(worker) as web:
            answers.append(found(web, terms=[{"text": "two dog"}]))
            assert web.get(f"/pictures/{answers[0][0][0]}").status_code == 200  # by the other's id
            assert web.get("/").status_code == 200
    assert answers[0] == answers[1]


def test_an_upload_is_found_by_the_other(server: Server) -> None:
    one, other = server.workers
    with server.only(one) as web:
        id = web.post("/api/uploads", files={"file": png()}).json()["id"]
        own = found(web, terms=[{"id": id}])
    with server.only(other) as web:
        assert found(web, terms=[{"id": id}]) == own
        shown = Image.open(io.BytesIO(web.get(f"/pictures/{id}").content))
        assert shown.size == (40, 30)
        assert web.get("/pictures/upload-none").status_code == 404
        assert web.get("/pictures/upload-..%2F..%2Fmetrics").status_code == 404


def test_what_one_changes_the_other_sees(server: Server) -> None:
    one, other = server.workers
    query = {"terms": [{"text": "a boat"}], "kind": "sentence"}
    with server.only(other) as web:
        before = found(web, **query)  # which it remembers
        entries = web.get("/api/overview").json()["entries"]
    with server.only(one) as web:
        told = web.post("/api/add/sentences", json={"sentences": {"x": "a boat"}}, headers=BEARER).json()
        added = web.post("/api/add", files={"file": png(50)}, data={"metadata": '{"mood": "calm"}'}, headers=BEARER)
        assert added.status_code == 200, added.text
        assert "mood" in web.get("/api/overview").json()["columns"]
    ids = [told["added"][0]["id"], added.json()["added"][0]["id"]]
    with server.only(other) as web:
        after = found(web, **query)
        assert ids[0] in dict(after)
        assert ids[0] not in dict(before)
        assert web.get("/api/overview").json()["entries"] == entries + 2
        assert web.get(f"/pictures/{ids[1]}").status_code == 200
        for id in ids:
            assert web.delete(f"/api/entries/{id}", headers=BEARER).json()["deleted"] == 1
    with server.only(one) as web:
        assert found(web, **query) == before
        assert web.get(f"/pictures/{ids[1]}").status_code == 404


def test_both_change_it_at_once(server: Server) -> None:
    def add(name: int) -> int:
        body = {"sentences": {f"{name}": "a dog"}}
        return httpx.post(f"{server.address}api/add/sentences", json=body, headers=BEARER, timeout=30).status_code

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(add, range(24))) == [200] * 24
    with sqlite3.connect(server.place / "index.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM entries WHERE key LIKE 'added/%'").fetchone()[0] == 24


def test_the_figures_are_those_of_both(server: Server) -> None:
    searches = 'diptych_searches_total{outcome="answered"}'
    before = server.figure(searches)
    for number, worker in enumerate(server.workers):
        with server.only(worker) as web:
            found(web, terms=[{"text": f"a boat of number {number}"}])
    for worker in server.workers:
        with server.only(worker):
            assert server.figure(searches) == before + 2
            assert server.figure("diptych_workers") == 2
            assert server.figure("process_resident_memory_bytes") > sum(map(resident, server.workers)) / 2
            assert server.figure("diptych_ready") == 1
            assert server.figure("diptych_model_load_seconds") > 0


def test_the_dashboard_finds_all_that_it_shows(server: Server) -> None:
    dashboard = (Path(__file__).parents[2] / "deploy" / "dashboard.json").read_text()
    text = httpx.get(server.address + "metrics", timeout=30).text
    told = {re.split(r"[ {]", line)[0] for line in text.splitlines()}
    assert set(re.findall(r"\b(?:diptych|process)_\w+", dashboard)) - told == set()


def resident(pid: int) -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def test_wrong_tokens_are_counted_by_both_together(server: Server) -> None:
    for worker in server.workers:
        with server.only(worker) as web:
            for _ in range(2):
                assert web.get("/", headers={"Authorization": "Bearer a-guess"}).status_code in (200, 401)
    with sqlite3.connect(server.shared / "wrong-tokens.db") as db:
        assert db.execute("SELECT wrong FROM clients WHERE name = '127.0.0.1'").fetchone() == (4,)


def test_it_is_ready_while_its_index_answers(server: Server) -> None:
    index, away = server.place / "index.db", server.place / "away.db"
    index.rename(away)
    try:
        for worker in server.workers:
            with server.only(worker) as web:
                until(lambda web=web: web.get("/ready").status_code == 503)  # type: ignore[misc]
                assert web.get("/ready").json() == {"error": "the index cannot be searched"}
                assert web.get("/health").status_code == 200
                assert server.figure("diptych_ready") == 0
    finally:
        away.rename(index)
    for worker in server.workers:
        with server.only(worker) as web:
            until(lambda web=web: web.get("/ready").status_code == 200)  # type: ignore[misc]


def test_one_that_dies_is_started_again(server: Server) -> None:
    killed, other = server.workers
    requests = 'diptych_requests_total{method="GET",route="/health",status="200"}'
    with server.only(killed) as web:
        assert web.get("/health").status_code == 200
    counted = server.figure(requests)
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in server.workers)
    assert httpx.get(server.address + "ready", timeout=30).status_code == 200  # by the other, at once
    until(lambda: server.figure("diptych_workers") == 2)
    assert server.workers[0] == other or server.workers[1] == other
    assert server.figure(requests) == counted  # what the dead one counted stays
    assert (
        f"note: worker {killed} was ended by signal 9; another is started now\n"
        in (server.place / "stderr").read_text()
    )
    new = next(pid for pid in server.workers if pid != other)
    until(lambda: bool(re.search(rf"_{new}\.db", " ".join(os.listdir(server.shared / "metrics")))))
    with server.only(new) as web:
        assert len(found(web, terms=[{"text": "two dog"}])) == 3


def test_a_worker_ends_with_its_supervisor() -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_end_with, args=[theirs], daemon=True)
    process.start()
    theirs.close()
    ours.close()
    process.join(30)
    assert process.exitcode == -signal.SIGTERM


def test_one_that_has_loaded_when_its_supervisor_is_gone_does_not_serve() -> None:
    ours, theirs = Pipe()
    ours.close()
    assert not _may_go(theirs)
    theirs.close()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (PermissionError(13, "Permission denied", "model.pt"), "model.pt: Permission denied"),
        (MemoryError(), "there is not enough memory for this; take smaller batches, pictures or models"),
    ],
)
@pytest.mark.parametrize("heard", [True, False])
def test_what_the_machine_refuses_while_loading_is_one_sentence(
    error: Exception, sentence: str, heard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))  # which `work` sets, and is taken back here
    monkeypatch.setattr(Index, "open", refuse)
    task = Work(ServerSettings(token=TOKEN, workers=2), "index.db", "cpu", Shared(tmp_path, "secret"))
    ours, theirs = Pipe()
    if not heard:
        ours.close()
    with socket.socket() as listener, theirs:
        work(task, listener, theirs)
    if heard:
        assert ours.recv() == sentence
        ours.close()


def test_the_port_closes_before_the_workers_have_ended(tmp_path: Path) -> None:
    task = Work(ServerSettings(token=TOKEN, workers=2), "index.db", "cpu", Shared(tmp_path, "secret"))
    signals = Signals()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with Crew(task, listener, signals):
            socket.create_connection(address).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    signals.close()


def test_one_that_cannot_load_ends_all_with_its_sentence(tmp_path: Path) -> None:
    shared = Shared(tmp_path, "secret")
    task = Work(ServerSettings(token=TOKEN, workers=2), str(tmp_path / "none.db"), "cpu", shared)
    signals = Signals()
    with socket.socket() as listener, Crew(task, listener, signals) as crew:
        with pytest.raises(DiptychError, match=r"none\.db: no such index"):
            crew.load()
        processes = [worker.process for worker in crew._workers]
    signals.close()
    assert [process.is_alive() for process in processes] == [False, False]


def test_what_cannot_be_is_said_before_anything_listens(
    tmp_path: Path, vse_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*options: str) -> str:
        assert run(["serve", "--index", str(tmp_path / "index.db"), "--device", "cpu", "--workers", "2", *options]) == 1
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        return str(error)

    assert "there is no index" in refused()
    small_index(tmp_path, vse_folder).close()
    capsys.readouterr()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port} cannot be opened" in refused("--port", port)
