import io
import json
import os
import pty
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.search.asking.translation import _pair
from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder

__all__ = ["own_folders", "vse_folder"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.fill(tmp_path_factory.mktemp("search") / "pictures", 6)
    (folder / "words.txt").write_text("two dog\na red boat\n")
    return folder


@pytest.fixture(scope="module")
def index(vse_folder: str, pictures: Path) -> str:
    address = pictures.with_name("i.db")
    with Index.create(address, vse_folder, device="cpu") as made:
        made.sync(pictures, what="both", metadata={str(pictures / "001.png"): {"album": "holiday"}})
    return str(address)


def results(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_score_and_path_a_line(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "two dog", "--index", index, "--top", "3"]) == 0
    lines = results(capsys)
    with Index.open(index) as opened:
        expected = opened.search("two dog", top=3).results
    assert lines == [[f"{r.score:.3f}", f"{r.confidence:.2f}", r.path] for r in expected]


def test_json(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "two", "dog", "--index", index, "--json", "--top", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["results"]) == 2
    assert told["results"][0].keys() >= {"path", "score", "confidence", "kind"}
    assert told["timings"].keys() >= {"encode", "retrieve", "total"}
    assert told["exact"] is True


def test_pictures_signs_and_sentences(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = str(pictures / "003.png")
    assert run(["search", "--image", picture, "--index", index, "--top", "1"]) == 0
    ((score, _, path),) = results(capsys)
    assert (score, path) == ("1.000", picture)
    assert run(["search", "dog", "+", f"9:@{picture}", "-", "snow", "--index", index, "--top", "1"]) == 0
    assert results(capsys)[0][2] == picture
    assert run(["search", "two dog", "--sentences", "--index", index]) == 0
    found = results(capsys)[0]
    assert [found[0], *found[2:]] == ["1.000", f"{pictures}/words.txt#1", "two dog"]


def test_filters(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "dog", "--index", index]
    assert run([*command, "--filter", "album=holiday"]) == 0
    assert [line[2] for line in results(capsys)] == [str(pictures / "001.png")]
    assert run([*command, "--path", "pictures/00[12].png", "--filter", "date>=2020"]) == 0
    assert len(results(capsys)) == 2
    assert run([*command, "--filter", "date<1990"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "nothing found\n")
    assert run([*command, "--threshold", "5"]) == 1
    assert results(capsys) == []
    assert run([*command, "--confidence", "1"]) == 1
    assert run([*command, "--threshold", "5", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["results"] == []


def test_queries_from_standard_input(
    index: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "two dog\n\n+ a cat - snow\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["search", "-", "--index", index, "--top", "2"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("#")] == ["# two dog", "# + a cat - snow"]
    assert len(out) == 6
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert run(["search", "-", "--index", index, "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [t["query"] for t in told] == ["two dog", "+ a cat - snow"]


def test_two_stages(index: str, vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    camp = tiny.save_camp(tmp_path / "camp", vse_folder)
    command = ["search", "two dog", "--index", index, "--rerank", camp, "--depth", "4", "--json"]
    for fusion in ("replace", "sum", "rrf"):
        assert run([*command, "--fusion", fusion]) == 0
        told = json.loads(capsys.readouterr().out)
        assert len(told["results"]) == 4
        assert told["timings"]["rerank"] > 0
        assert told["results"][0].keys() >= {"retrieval", "rerank"}
    assert run([*command, "--fusion", "mean"]) == 2


def test_duplicates_are_shown_as_one(vse_folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.fill(tmp_path / "pictures", 1)
    (folder / "copy.png").write_bytes((folder / "000.png").read_bytes())
    with Index.create(tmp_path / "i.db", vse_folder, device="cpu") as made:
        made.sync(folder)
    assert run(["search", "dog", "--index", str(tmp_path / "i.db"), "--group-duplicates"]) == 0
    (line,) = results(capsys)
    assert line[3] == "(and 1 like it)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dog"], "there is no index yet"),
        (["dog", "--index", "none.db"], "no such index"),
        (["--index", "INDEX"], "the query is empty"),
        (["-", "snow", "--index", "INDEX"], "only subtracts"),
        (["dog", "--filter", "x", "--index", "INDEX"], "filter 'x'"),
        (["dog", "--image", "none.jpg", "--index", "INDEX"], "none.jpg: no such picture"),
        (["dog", "--rerank", "./none", "--index", "INDEX"], "no such folder"),
        (["./none.jpg", "--index", "INDEX"], "none.jpg: no such picture"),
        (["@none", "--index", "INDEX"], "none: no such picture"),
        (["dog", "+", "none.png", "--index", "INDEX"], "none.png: no such picture"),
        (
            ["dog", "--filter", "albun=x", "--index", "INDEX"],
            "filter 'albun': no entry has such a column; did you mean 'a",
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], words: str, index: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", *(index if a == "INDEX" else a for a in arguments)]) == 1
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_paths_for_other_programs(index: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Index.open(index) as opened:
        expected = [r.path for r in opened.search("two dog", top=3).results]
    command = ["search", "two dog", "--index", index, "-n", "3"]
    assert run([*command, "--paths"]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    for flag in ("-0", "--null"):
        assert run([*command, flag]) == 0
        assert capsys.readouterr().out == "".join(f"{path}\0" for path in expected)
    assert run([*command, "--paths", "--confidence", "1"]) == 1


def test_a_word_that_names_a_picture(
    index: str, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures)
    for word in ("./003.png", "@003.png", "003.png", str(pictures / "003.png")):
        assert run(["search", word, "--index", index, "-n", "1", "--paths"]) == 0
        assert capsys.readouterr().out == f"{pictures}/003.png\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("./003.png\n@004.png\n"))
    assert run(["search", "-", "--index", index, "-n", "1", "--paths"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{pictures}/003.png", f"{pictures}/004.png"]


def test_results_are_opened_by_the_system(
    index: str, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, program = tmp_path / "log", tmp_path / ("open" if sys.platform == "darwin" else "xdg-open")
    program.write_text(f'#!/bin/sh\necho "$1" >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command = ["search", "--image", str(pictures / "002.png"), "--index", index, "-n", "3"]
    assert run([*command, "--open"]) == 0
    wait_for(lambda: log.exists() and log.read_text() == f"{pictures}/002.png\n")
    log.unlink()
    assert run([*command, "--open-all", "--paths"]) == 0
    printed = capsys.readouterr().out.splitlines()[-3:]
    wait_for(lambda: log.exists() and sorted(log.read_text().splitlines()) == sorted(printed))
    log.unlink()
    assert run([*command, "--open", "--threshold", "9"]) == 1
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert run([*command, "--open"]) == 1
    assert "which opens files" in capsys.readouterr().err


def wait_for(done: Callable[[], bool]) -> None:
    """A viewer is not waited for by who opens it."""
    for _ in range(3000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, arguments: list[str], **environment: str) -> str:
    """What a command prints on a terminal of its own."""
    here, terminal = pty.openpty()
    printed: list[bytes] = []

    def read() -> None:
        try:
            while some := os.read(here, 65536):
                printed.append(some)
        except OSError:  # nobody has it open any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patched, os.fdopen(terminal, "w") as screen:
        patched.delenv("TMUX", raising=False)
        for name, value in environment.items():
            patched.setenv(name, value)
        patched.setattr("sys.stdout", screen)
        assert run(arguments) == 0
    reader.join()
    os.close(here)
    return b"".join(printed).decode().replace("\r\n", "\n")


def test_a_terminal_gets_a_head_and_the_pictures(index: str, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = pictures / "003.png"
    with Index.open(index) as opened:
        sure = opened.search(picture, top=1).results[0].confidence
    command = ["search", "--image", str(picture), "--index", index, "-n", "1", "--device", "cpu"]
    first = f"score   sure  path\n1.000   {sure:.2f}  {picture}\n"
    assert on_a_terminal(monkeypatch, command, TERM="xterm") == first
    shown = on_a_terminal(monkeypatch, [*command, "--preview"], TERM="xterm-kitty")
    assert re.fullmatch(re.escape(first) + r"\x1b_Ga=T,f=100,q=2,c=4,r=2,m=0;[^\x1b]+\x1b\\\n", shown)
    shown = on_a_terminal(monkeypatch, [*command, "--preview", "--preview-with", "blocks"], TERM="xterm-kitty")
    assert shown.count("▀") == 12 * 32


def test_no_preview_where_nobody_looks(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "dog", "--index", index, "-n", "1", "--preview", "--preview-with", "kitty"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_query_in_another_language(
    index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "apertium"
    program.write_text('#!/bin/sh\n[ "$1" = -l ] && echo "  spa-eng" || sed -e s/dos/two/ -e s/perros/dog/\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _pair.cache_clear()
    assert run(["search", "dos perros", "--language", "es", "--index", index]) == 0
    translated = results(capsys)
    assert run(["search", "two dog", "--index", index]) == 0
    assert results(capsys) == translated
    assert run(["search", "dos perros", "--language", "xx", "--index", index]) == 1
    _pair.cache_clear()
