from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.search.asking.query import (
    SearchQuery,
    Term,
    as_query,
    parse_filter,
    parse_line,
    parse_terms,
    parse_typed,
    path_filter,
    with_pictures,
)
from diptych.search.stores.store import Condition


def test_words_without_signs_are_one_sentence() -> None:
    assert parse_terms(["two dogs"]) == [Term("two dogs")]
    assert parse_terms(["2:15", "train", "@home"]) == [Term("2:15 train @home")]
    assert parse_terms([]) == []


def test_signs_weights_and_pictures() -> None:
    terms = parse_terms(["two", "dogs", "+", "2:snow", "-", "@grass.jpg", "-", "0.5:@a b.png"])
    assert terms == [Term("two dogs"), Term("snow", 2.0), Term(Path("grass.jpg"), -1.0), Term(Path("a b.png"), -0.5)]
    assert parse_terms(["+", "dog"]) == [Term("dog")]
    assert parse_terms(["-", "dog"]) == [Term("dog", -1.0)]
    for words in (["dog", "+"], ["dog", "+", "-", "cat"], ["-", "+", "cat"]):
        with pytest.raises(DiptychError, match="expected a sentence"):
            parse_terms(words)


def test_lines() -> None:
    assert parse_line(" a man - smiling + waving \n") == SearchQuery((Term("a man - smiling + waving"),))
    assert parse_line("+ two dogs + 2:snow - grass") == SearchQuery(
        (Term("two dogs"), Term("snow", 2.0), Term("grass", -1.0))
    )


def test_queries() -> None:
    image = Image.new("RGB", (2, 2))
    assert as_query(image).terms[0].kind == "picture"
    assert as_query(Path("a.jpg")).terms[0].kind == "picture"
    assert as_query("a dog").terms[0].kind == "sentence"
    assert as_query(np.zeros(3)).terms[0].kind is None
    assert as_query([Term("a"), Term("b", -2)]).weights.tolist() == [1, -2]
    for terms, words in (((), "empty"), ((Term(" "),), "empty sentence"), ((Term("a", -1.0),), "only subtracts")):
        with pytest.raises(DiptychError, match=words):
            SearchQuery(terms)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("date>=2024-01-01", Condition("date", ">=", "2024-01-01")),
        ("date=2024", Condition("date", "=", "2024")),
        ("album = summer 2024 ", Condition("album", "=", "summer 2024")),
        ("stars>3", Condition("stars", ">", 3)),
        ("stars!=3.5", Condition("stars", "!=", 3.5)),
        ("year='2024'", Condition("year", "=", "2024")),
        ("camera~Canon*", Condition("camera", "matches", "Canon*")),
        ("a b==c=d", Condition("a b", "=", "c=d")),
    ],
)
def test_filters(text: str, condition: Condition) -> None:
    found = parse_filter(text)
    assert found == condition
    assert type(found.value) is type(condition.value)


@pytest.mark.parametrize("text", ["album", "=3", "album=", ""])
def test_filters_that_say_nothing(text: str) -> None:
    with pytest.raises(DiptychError, match="filter"):
        parse_filter(text)


def test_path_patterns() -> None:
    assert path_filter("holiday/*").value == "*/holiday/*"
    assert path_filter("/home/*").value == "/home/*"
    assert path_filter("*.png").value == "*.png"


def test_a_filter_without_end_is_refused_at_once() -> None:
    with pytest.raises(DiptychError, match="expected NAME"):
        parse_filter(" " * 1_000_000)


def test_what_names_a_picture_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b.jpg").write_bytes(b"x")
    (tmp_path / "pic.png").write_bytes(b"x")
    (tmp_path / "noted").write_bytes(b"x")
    for text, path in {
        "@pic.png": "pic.png",
        "@ pic.png": "pic.png",
        "./pic.png": "pic.png",
        "pic.png": "pic.png",
        "@a b.jpg": "a b.jpg",
        "./a b.jpg": "a b.jpg",
        "~/pic.png": f"{tmp_path}/pic.png",
        f"{tmp_path}/pic.png": f"{tmp_path}/pic.png",
        "@noted": "noted",
    }.items():
        assert with_pictures([Term(text, 0.5)]) == [Term(Path(path), 0.5)], text
    for text in ("a picture of pic.png", "noted", "1/2", "me @home", "a dog", "@", "and/or"):
        assert with_pictures([Term(text)]) == [Term(text)]


@pytest.mark.parametrize("text", ["@none.jpg", "./none", "none.JPEG", "/none.png", "../none.heic", "none.heic"])
def test_a_picture_that_is_not_there_is_no_sentence(text: str) -> None:
    with pytest.raises(DiptychError, match=r"none.*: no such picture"):
        with_pictures([Term(text)])
    with pytest.raises(DiptychError, match="no such picture"):
        with_pictures([Term(Path("nowhere.png"))])
    with pytest.raises(DiptychError, match="a folder; expected a picture"):
        with_pictures([Term("./")])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("beach + dog - people", ["beach", "+", "dog", "-", "people"]),
        ("  + two dogs - 2:snow ", ["+", "two", "dogs", "-", "2:snow"]),
        ('"a man - a woman" - snow', ["a man - a woman", "-", "snow"]),
        ('a 5" pipe + "', ["a", '5"', "pipe", "+", '"']),
        ("well-known c++ -x", ["well-known", "c++", "-x"]),
        ('"" + " "', ['""', "+", '"', '"']),
    ],
)
def test_what_is_typed_is_parsed_as_the_words_of_a_command_line(line: str, words: list[str]) -> None:
    assert parse_typed(line) == parse_terms(words)


def test_a_typed_line_without_signs_is_one_sentence() -> None:
    assert parse_typed('"a man - a woman"') == [Term("a man - a woman")]
    assert parse_typed(" two   dogs ") == [Term("two dogs")]
    assert parse_typed("- snow") == [Term("snow", -1.0)]  # there may be other terms beside it
    assert parse_typed("  ") == []
