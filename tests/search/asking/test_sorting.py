import pytest

from diptych.common.errors import DiptychError
from diptych.search.asking.results import Result
from diptych.search.asking.sorting import Sort, parse_sort, sorted_results
from diptych.search.stores.store import Value

SECOND = 10**9


def result(key: str, score: float, changed: int = 0, **metadata: Value) -> Result:
    return Result(key, "picture", score, score, changed=changed, metadata=metadata)


FOUND = [
    result("d", 0.9, taken="2021-01-01T00:00:00", width=30),
    result("a", 0.8, changed=1_600_000_000 * SECOND, width=10, album="x"),  # of September 2020
    result("c", 0.7, taken="2019-07-04T12:30:00", width=30),
    result("b", 0.6),
]


def keys(text: str) -> str:
    return "".join(r.key for r in sorted_results(FOUND, parse_sort(text)))


def test_results_are_sorted_by_anything_they_have() -> None:
    assert (keys("path"), keys("-path")) == ("abcd", "dcba")
    assert (keys("score"), keys("-score"), keys("-confidence")) == ("bcad", "dacb", "dacb")
    # When it was taken first, the file's date only where that is not known; without any it comes last, both ways.
    assert (keys("date"), keys("-date")) == ("cadb", "dacb")
    # Equal ones stay best first, both ways.
    assert (keys("width"), keys("-width")) == ("adcb", "dcab")


def test_numbers_and_text_do_not_mix() -> None:
    found = [result("a", 1.0, x="ten"), result("b", 0.9, x=3), result("c", 0.8, x=2.5), result("d", 0.7, x="nine")]
    assert "".join(r.key for r in sorted_results(found, Sort("x"))) == "cbda"
    assert "".join(r.key for r in sorted_results(found, Sort("x", True))) == "adbc"


def test_a_column_that_nothing_has() -> None:
    with pytest.raises(DiptychError, match="sort 'albun': no result has such a column; did you mean 'album'"):
        keys("albun")
    assert keys("lens") == "dacb"  # pictures may have one; these have none
    assert sorted_results([], Sort("albun")) == []


@pytest.mark.parametrize("text", ["", "-", "  "])
def test_nothing_to_sort_by(text: str) -> None:
    with pytest.raises(DiptychError, match="expected date, path"):
        parse_sort(text)


def test_which_date_it_is() -> None:
    assert [r.dated for r in FOUND] == ["taken", "file", "taken", "file"]
    assert FOUND[2].to_json()["date"] == "2019-07-04T12:30:00"
    assert (FOUND[1].to_json()["dated"], FOUND[3].date) == ("file", None)
