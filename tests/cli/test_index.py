import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diptych.cli.main import run
from diptych.search.stores.address import open_store
from tests.search import tiny
from tests.search.conftest import own_folders, pictures, vse_folder

__all__ = ["own_folders", "pictures", "vse_folder"]


def outcome(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(capsys.readouterr().out)
    return loaded


def test_a_folder_is_indexed_and_kept_in_step(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["index", str(pictures), "--index", str(tmp_path / "i.db"), "--device", "cpu"]
    assert run([*arguments, "--model", vse_folder, "--json"]) == 0
    told = outcome(capsys)
    assert (told["added"], told["entries"], told["problems"], told["model"]) == (6, 6, [], vse_folder)
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "6 unchanged" in out
    assert "6 entries" in out
    (pictures / "000.png").unlink()
    assert run([*arguments, "--json"]) == 0
    assert outcome(capsys)["deleted"] == 1


def test_a_folder_that_is_empty_today_is_asked_about(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["index", str(pictures), "--index", str(tmp_path / "i.db"), "--model", vse_folder, "--json"]
    assert run(arguments) == 0
    for file in pictures.iterdir():
        file.unlink()
    capsys.readouterr()
    assert run(arguments) == 1
    told = capsys.readouterr()
    assert (json.loads(told.out)["deleted"], json.loads(told.out)["entries"]) == (0, 6)
    assert f"{pictures}: all 6 files that the index knows are gone; nothing of it was deleted" in told.err
    assert "--delete" in told.err

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert run(arguments) == 1
    assert outcome(capsys)["entries"] == 6
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    assert run(arguments) == 0
    told = capsys.readouterr()
    assert (json.loads(told.out)["deleted"], json.loads(told.out)["entries"]) == (6, 0)


def test_deletion_without_a_question(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["index", str(pictures), "--index", str(tmp_path / "i.db"), "--model", vse_folder, "--json"]
    assert run(arguments) == 0
    for file in pictures.iterdir():
        file.unlink()
    capsys.readouterr()
    assert run([*arguments, "--delete"]) == 0
    assert outcome(capsys)["deleted"] == 6


def test_what_cannot_be_read_is_told_at_the_end(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "bad.jpg").write_bytes(b"x")
    arguments = ["index", str(pictures), "--index", str(tmp_path / "i.db"), "--model", vse_folder]
    assert run(arguments) == 0
    told = capsys.readouterr().err
    assert f"{pictures}/bad.jpg: not a picture of a known format" in told
    assert "note: 1 thing could not be read" in told
    assert run([*arguments, "--strict"]) == 1
    told = capsys.readouterr().err
    assert f"{pictures}/bad.jpg: not a picture of a known format" in told
    assert "1 not tried again, since nothing changed; --retry does" in told
    assert run([*arguments, "--retry"]) == 0
    assert "not tried again" not in capsys.readouterr().err


def test_the_users_own_index_needs_no_name(pictures: Path, vse_folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", str(pictures), "--model", vse_folder, "--json"]) == 0
    path = Path(str(outcome(capsys)["index"]))
    assert path == Path(os.environ["XDG_DATA_HOME"]) / "diptych" / "index.db"
    path.unlink()


def test_options_reach_the_index(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "words.txt").write_text("two dog\n")
    (pictures / "m.csv").write_text("path,album\n001.png,holiday\n")
    index = str(tmp_path / "i.db")
    camp = tiny.save_camp(tmp_path / "camp", vse_folder)
    options = ["--what", "both", "--exclude", "000.*", "--exclude", "*.csv", "--metadata", str(pictures / "m.csv")]
    command = ["index", str(pictures), "--index", index, "--model", vse_folder, "--keep-locals", camp, *options]
    assert run([*command, "--json"]) == 0
    assert outcome(capsys)["entries"] == 6
    store = open_store(index)
    entry = store.get([str(pictures / "001.png")])[0]
    assert entry is not None
    assert entry.metadata["album"] == "holiday"
    assert entry.locals is not None
    assert entry.locals.shape == (16, 12)
    store.close()


def test_the_kind_of_approximate_index_and_memory_are_remembered(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(tmp_path / "i.db")
    assert run(["index", str(pictures), "--index", address, "--model", vse_folder, "--memory", "500MB"]) == 0
    assert run(["index", "--index", address, "--approximate", "pq"]) == 0
    store = open_store(address)
    known = store.properties
    store.close()
    assert (known["approximate"], known["memory"]) == ("pq", "500000000")
    capsys.readouterr()
    assert run(["index", "--index", address, "--memory", "1MB"]) == 1
    assert "memory: expected at least 64MiB" in capsys.readouterr().err


def test_vectors_in_and_out(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index, out = str(tmp_path / "i.db"), tmp_path / "out.npz"
    assert run(["index", str(pictures), "--index", index, "--model", vse_folder, "--export", str(out), "--json"]) == 0
    assert outcome(capsys)["exported"] == 6
    assert np.load(out)["vectors"].shape == (6, 1, 8)
    assert run(["index", "--index", str(tmp_path / "j.db"), "--import", str(out), "--json"]) == 0
    told = outcome(capsys)
    assert (told["imported"], told["entries"], told["model"]) == (6, 6, "")


def test_damaged_entries_are_found_and_made_again(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "i.db"
    arguments = ["index", "--index", str(path), "--json"]
    assert run([*arguments, str(pictures), "--model", vse_folder]) == 0
    capsys.readouterr()
    assert run([*arguments, "--check"]) == 0
    assert outcome(capsys) == {"index": str(path), "checked": 6, "damaged": []}
    db = sqlite3.connect(path)
    db.execute("UPDATE vectors SET data = zeroblob(32) WHERE entry = 2")
    db.commit()
    name = db.execute("SELECT key FROM entries WHERE id = 2").fetchone()[0]
    db.close()
    assert run([*arguments, "--check"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["damaged"] == [name]
    assert f"{name}: not as it was written" in told.err
    assert run([*arguments, "--check", "--delete"]) == 0
    capsys.readouterr()
    assert run([*arguments, str(pictures)]) == 0
    assert outcome(capsys)["added"] == 1
    assert run([*arguments, "--check"]) == 0


@pytest.mark.parametrize("option", [["--export", "out.npz"], ["--check"]])
def test_an_index_that_is_not_there_is_not_made_to_be_read(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["index", "--index", "mistyped.db", *option]) == 1
    assert "mistyped.db: no such index" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no such index; name a folder to make one"),
        (["--watch"], "no such index; name a folder to make one"),
        (["--watch", "--check"], "--watch: watches folders"),
        (["nowhere", "--model", "VSE"], "no such file or folder"),
        ([".", "--model", "./none"], "no such folder or model"),
        ([".", "--index", "http://x"], "expected a file's path, milvus"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], words: str, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [vse_folder if a == "VSE" else a for a in arguments]
    index = [] if "--index" in given else ["--index", str(tmp_path / "i.db")]
    assert run(["index", *given, *index]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_killed_while_it_embeds(vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.fill(tmp_path / "pictures", 40)
    address = tmp_path / "i.db"
    command = ["index", str(folder), "--index", str(address), "--model", vse_folder, "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-m", "diptych", *command, "--workers", "1", "--batch-size", "1"])
    while process.poll() is None and not address.exists():
        time.sleep(0.005)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run([*command, "--json"]) == 0
    assert outcome(capsys)["entries"] == 40


def test_without_a_path_all_folders_are_brought_in_step(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = ["--index", str(tmp_path / "i.db")]
    other = tiny.fill(tmp_path / "other", 2, start=10)
    (other / "words.txt").write_text("two dog\n")
    assert run(["index", str(pictures), "--exclude", "00[01].png", *index, "--model", vse_folder]) == 0
    assert run(["index", str(other), "--what", "both", *index]) == 0
    tiny.fill(pictures, 1, start=7)
    (other / "words.txt").write_text("two dog\na cat\n")
    capsys.readouterr()
    assert run(["index", *index, "--json"]) == 0
    told = outcome(capsys)
    assert (told["added"], told["unchanged"], told["entries"]) == (2, 6, 9)
    # What the line says goes before what is remembered, and is remembered in its place.
    assert run(["index", *index, "--exclude", "000.png", "--json"]) == 0
    assert outcome(capsys)["added"] == 1
    assert run(["index", *index, "--json"]) == 0
    assert outcome(capsys)["unchanged"] == 9


def test_a_folder_of_the_index_that_is_not_there(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = ["--index", str(tmp_path / "i.db"), "--json"]
    other = tiny.fill(tmp_path / "other", 2, start=10)
    assert run(["index", str(pictures), str(other), *index, "--model", vse_folder]) == 0
    pictures.rename(tmp_path / "away")
    tiny.fill(other, 1, start=12)
    capsys.readouterr()
    assert run(["index", *index]) == 1
    told = capsys.readouterr()
    assert (json.loads(told.out)["added"], json.loads(told.out)["entries"]) == (1, 9)
    assert f"{pictures}: all 6 files that the index knows are gone; nothing of it was deleted" in told.err
    assert run(["index", *index, "--delete"]) == 0
    assert outcome(capsys)["entries"] == 3
    assert run(["index", *index]) == 0


def test_an_index_of_another_model_is_not_brought_in_step(
    pictures: Path, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = ["--index", str(tmp_path / "i.db")]
    assert run(["index", str(pictures), *index, "--model", vse_folder]) == 0
    assert run(["index", *index, "--model", "default"]) == 1
    assert "made with" in capsys.readouterr().err


def test_watching_until_ctrl_c(pictures: Path, vse_folder: str, tmp_path: Path) -> None:
    pytest.importorskip("watchfiles", reason="the package watchfiles is not installed")
    index = tmp_path / "pictures" / "i.db"  # its own files are no change
    command = ["index", str(pictures), "--index", str(index), "--model", vse_folder, "--device", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "diptych", *command, "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert json.loads(process.stdout.readline())["added"] == 6
        assert "watching 1 folder" in process.stderr.readline()
        added, number = 0, 10
        while not added:  # when it begins to watch cannot be seen
            tiny.fill(pictures, 1, start=number)
            number += 1
            if select.select([process.stdout], [], [], 1)[0]:
                added += json.loads(process.stdout.readline())["added"]
        while added < number - 10:
            added += json.loads(process.stdout.readline())["added"]
        (pictures / "000.png").unlink()
        assert json.loads(process.stdout.readline())["deleted"] == 1
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, error) == (0, "", "stopped\n")


def test_watching_ends_well_when_the_system_says_so(
    pictures: Path,
    vse_folder: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def watched(roots: list[str], index: str) -> Iterator[list[str]]:
        yield roots  # a run that changes nothing, and says nothing
        tiny.fill(pictures, 1, start=30)
        yield roots
        os.kill(os.getpid(), signal.SIGTERM)
        yield roots

    monkeypatch.setattr("diptych.search.watch.watch_roots", watched)
    before = signal.getsignal(signal.SIGTERM)
    (pictures / "bad.jpg").write_bytes(b"x")
    assert run(["index", str(pictures), "--index", str(tmp_path / "i.db"), "--model", vse_folder, "--watch"]) == 0
    told = capsys.readouterr()
    assert [line.partition(": ")[2].partition(" in ")[0] for line in told.out.splitlines()] == [
        "6 added",
        "1 added, 6 unchanged",
    ]
    assert told.err.count("bad.jpg: not a picture") == 1  # not again each time
    assert told.err.endswith("stopped\n")
    assert signal.getsignal(signal.SIGTERM) == before
