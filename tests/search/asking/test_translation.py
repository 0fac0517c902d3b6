"""Queries in other languages. Where Apertium is installed it is asked; elsewhere a program stands in for it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.asking import translation
from diptych.search.asking.query import SearchQuery, Term
from diptych.search.asking.translation import to_english, translated
from diptych.search.index import Index

# As the real one is called: -l lists its pairs, -u PAIR reads paragraphs. It knows a few words.
STAND_IN = """#!/bin/sh
if [ "$1" = "-l" ]; then printf '  cat-eng\\n  eng-spa\\n  gl-en\\n  spa-eng\\n  spa-eng_US\\n'; exit 0; fi
[ "$1" = "-u" ] || exit 1
case "$2" in broken-en) echo 'it broke' >&2; exit 3;; esac
sed -e 's/dos/two/g' -e 's/perros/dog/g' -e 's/nieve/snow/g'
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    translation._pair.cache_clear()
    yield
    translation._pair.cache_clear()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "apertium"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("language", ["es", "spa"])
def test_sentences_are_translated_in_their_order(stand_in: Path, language: str) -> None:
    assert to_english(["dos perros", "la\n nieve", "dos"], language) == ["two dog", "la snow", "two"]
    assert to_english([], language) == []


def test_pairs_are_found_by_either_code_and_english_stays(stand_in: Path) -> None:
    assert [translation._pair(code) for code in ("glg", "gl", "cat", "ca")] == ["gl-en", "gl-en", "cat-eng", "cat-eng"]
    stand_in.unlink()
    assert to_english(["a dog"], "en") == ["a dog"]


def test_only_sentences_of_a_query_are_translated(stand_in: Path) -> None:
    vector = np.ones((1, 8))
    (query,) = translated([SearchQuery((Term("dos perros", 2.0), Term(Path("dos.png"), -1.0), Term(vector)))], "es")
    assert [term.value for term in query.terms] == ["two dog", Path("dos.png"), vector]
    assert [term.weight for term in query.terms] == [2.0, -1.0, 1.0]


def test_a_search_in_another_language_finds_what_the_english_one_finds(
    stand_in: Path, vse_folder: str, pictures: Path, tmp_path: Path
) -> None:
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        index.sync(pictures)
        english, spanish = index.search("two dog"), index.search("dos perros", language="es")
        untranslated = index.search("dos perros")
    assert [(r.key, r.score) for r in spanish.results] == [(r.key, r.score) for r in english.results]
    assert [r.score for r in untranslated.results] != [r.score for r in english.results]
    assert "translate" in spanish.timings
    assert "translate" not in english.timings


def test_what_is_missing_is_said(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiptychError, match="apertium cannot translate 'de' to English here; it has cat, gl, spa"):
        to_english(["hund"], "de")
    with pytest.raises(DiptychError, match="cannot translate '--help'"):
        to_english(["hund"], "--help")
    stand_in.write_text("#!/bin/sh\n[ $1 = -l ] && echo spa-eng && exit 0\necho no such locale >&2\nexit 1\n")
    with pytest.raises(DiptychError, match="apertium says: no such locale"):
        to_english(["perro"], "es")
    stand_in.write_text("#!/bin/sh\n[ $1 = -l ] && echo spa-eng && exit 0\necho one\n")
    with pytest.raises(DiptychError, match="gave 1 translations of 2"):
        to_english(["perro", "gato"], "es")
    monkeypatch.setenv("PATH", str(stand_in.parent / "nothing"))
    with pytest.raises(DiptychError, match="needs the program apertium"):
        to_english(["perro"], "es")


@pytest.mark.skipif(shutil.which("apertium") is None, reason="Apertium is not installed")
def test_the_real_program_translates() -> None:
    try:
        told = to_english(["dos perros juegan en la nieve", "un niño"], "es")
    except DiptychError as error:
        pytest.skip(str(error))
    assert told[0].lower() == "two dogs play in the snow"
    assert len(told) == 2
