"""An error is one sentence, whose place and whose matter can be had apart."""

import pickle
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError


def test_a_sentence_alone_has_no_place() -> None:
    error = DiptychError("expected at least 1")
    assert (str(error), error.what, error.where) == ("expected at least 1", "expected at least 1", None)


def test_the_sentence_begins_with_its_place() -> None:
    error = DiptychError("line 3: not valid: {", where=Path("a: b.json"))
    assert str(error) == "a: b.json: line 3: not valid: {"
    assert (error.where, error.what) == ("a: b.json", "line 3: not valid: {")


def test_it_passes_between_processes_whole() -> None:
    error = pickle.loads(pickle.dumps(DiptychError("no such file", where="a.json")))
    assert isinstance(error, DiptychError)
    assert (str(error), error.where, error.what) == ("a.json: no such file", "a.json", "no such file")


@pytest.mark.parametrize(
    ("where", "place", "told"),
    [
        (None, "run", "it is empty"),
        ("run", "run", "it is empty"),
        ("run/best/config.json", Path("run"), "best/config.json: it is empty"),
        ("run: line 2", "run", "line 2: it is empty"),
        ("running: line 2", "run", "running: line 2: it is empty"),
        ("elsewhere", "run", "elsewhere: it is empty"),
    ],
)
def test_one_who_knows_the_place_is_told_only_what_lies_inside(where: str | None, place: object, told: str) -> None:
    assert DiptychError("it is empty", where=where).within(place) == told
