import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from diptych.cli.main import run
from diptych.cli.serve import _tell
from diptych.web.settings import ServerSettings
from tests.web.models import own_folders, vse_folder
from tests.web.serving import small_index

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture
def place(tmp_path: Path, vse_folder: str) -> Path:
    """An index at index.db of the folder."""
    small_index(tmp_path, vse_folder).close()
    return tmp_path


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "diptych", "serve", "--port", "0", "--device", "cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        pytest.fail(process.communicate()[1])
    return line


def test_it_serves_until_it_is_told_to_stop(place: Path) -> None:
    with started("--index", str(place / "index.db"), "--json") as process:
        told = json.loads(line_of(process))
        assert told["entries"] == 11
        with httpx.Client(base_url=told["address"], timeout=30) as web:
            assert web.get("/").status_code == 200
            assert len(web.get("/api/search", params={"q": "two dog", "top": 3}).json()["results"]) == 3
            assert web.post("/api/add/sentences", json={"sentences": {"a": "a dog"}}).status_code == 401
            token = {"Authorization": f"Bearer {told['token']}"}
            added: list[int] = []

            def add() -> None:
                try:
                    while True:
                        body = {"sentences": {f"{len(added)}": "a dog"}}
                        if web.post("/api/add/sentences", json=body, headers=token).status_code != 200:
                            return
                        added.append(1)
                except httpx.HTTPError:
                    pass

            adding = threading.Thread(target=add)
            adding.start()
            while len(added) < 3:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            adding.join(30)
    with sqlite3.connect(place / "index.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = db.execute("SELECT count(*) FROM entries WHERE key LIKE 'added/%'").fetchone()[0]
    assert kept >= len(added)  # what was answered is kept; one more may have been under way


def test_other_addresses_ask_for_the_token(place: Path) -> None:
    with started("--index", str(place / "index.db"), "--host", "0.0.0.0", DIPTYCH_TOKEN="from-outside") as process:
        address = re.fullmatch(r"11 entries at (http://127\.0\.0\.1:\d+/)\n", line_of(process))
        assert address is not None
        assert httpx.get(address[1] + "api/search?q=dog").status_code == 401
        given = {"Authorization": "Bearer from-outside"}
        assert httpx.get(address[1] + "api/search?q=dog", headers=given).status_code == 200
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "from-outside" not in out + error  # whoever gave it knows it
        assert "Traceback" not in error


def test_a_token_that_was_made_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _tell(ServerSettings(token="made-just-now"), 1234, made=True, as_json=False)
    assert capsys.readouterr().out == (
        "1,234 entries at http://127.0.0.1:8000/\ntoken for adding and deleting: made-just-now\n"
    )
    _tell(ServerSettings(host="0.0.0.0", port=80, token="made-just-now"), 5, made=True, as_json=False)
    out, error = capsys.readouterr()
    assert out.startswith("5 entries at http://127.0.0.1:80/?token=made-just-now\n")
    assert "others can reach" in error


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["serve", *arguments]) == 1
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    return error


def test_without_an_index_nothing_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "--index", str(tmp_path / "none.db")) == (
        f"diptych serve: {tmp_path / 'none.db'}: there is no index; make one with `diptych index FOLDER`\n"
    )
    assert not (tmp_path / "none.db").exists()
    assert "there is no index" in refused(capsys)
    (tmp_path / "text.db").write_text("x")
    assert "not an index" in refused(capsys, "--index", str(tmp_path / "text.db"))


def test_what_cannot_be_is_said_before_anything_listens(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = ["--index", str(place / "index.db"), "--device", "cpu"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port} cannot be opened" in refused(capsys, *index, "--port", str(port))
    assert "--host no.such.name.invalid" in refused(capsys, *index, "--host", "no.such.name.invalid")
    assert "8 to 256" in refused(capsys, *index, "--token", "short")
    assert "none" in refused(capsys, *index, "--port", "0", "--rerank", str(place / "none"))
