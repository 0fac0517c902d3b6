import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.search.asking.duplicates import NEAR
from diptych.search.asking.query import parse_terms
from diptych.web.page.state import PER_PAGE, PageState, PageTerm, read_state
from diptych.web.schemas import MOST_PLACES, MOST_TOP, SearchRequest

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=12).filter(
    lambda text: text[0] not in "+-"
)
TERMS = st.builds(PageTerm, WORDS, st.booleans(), st.sampled_from([2.0, 1.0, -0.5, -1.0, 0.25]))
STATES = st.builds(
    PageState,
    q=st.one_of(st.just(""), WORDS),
    terms=st.lists(TERMS, max_size=3, unique_by=lambda term: (term.value, term.is_picture)).map(tuple),
    kind=st.sampled_from(["picture", "sentence"]),
    rerank=st.booleans(),
    group=st.booleans(),
    sure=st.booleans(),
    path=st.one_of(st.just(""), WORDS),
    since=st.sampled_from(["", "2024-05-01"]),
    until=st.sampled_from(["", "2025-01-31"]),
    where=st.lists(WORDS, max_size=2, unique=True).map(tuple),
    top=st.integers(1, MOST_TOP),
    after=st.integers(0, MOST_PLACES - 1),
).filter(lambda state: state.q not in [term.value for term in state.terms])


@given(STATES)
def test_an_address_holds_the_whole_state(state: PageState) -> None:
    assert read_state(state.items()) == state


@given(STATES.filter(lambda state: state.asks))
def test_every_state_is_a_request_of_the_api(state: PageState) -> None:
    request = SearchRequest.model_validate(state.request())
    assert len(request.terms) == len(state.terms) + bool(state.q)
    assert request.group == (NEAR if state.group else None)
    assert request.rerank == (state.rerank and state.can_rerank)


def test_what_is_usual_is_not_in_the_address() -> None:
    assert PageState().url() == "/"
    assert PageState(q="two dogs & a cat").url() == "/?q=two+dogs+%26+a+cat"
    assert PageState(q="a").url("/why", id="x", sentence=None) == "/why?q=a&id=x"


def test_a_line_with_signs_becomes_chips() -> None:
    state = read_state([("q", "+ two dogs - 2:snow + @an-id")])
    assert state.q == ""
    assert state.terms == (PageTerm("two dogs"), PageTerm("snow", False, -2.0), PageTerm("an-id", True))


def test_what_is_typed_means_what_it_means_on_the_command_line() -> None:
    line = "beach + dog - people"
    told = [(term.value, term.weight) for term in parse_terms(line.split())]
    assert [(term.value, term.weight) for term in read_state([("q", line)]).all_terms] == told
    assert told == [("beach", 1.0), ("dog", 1.0), ("people", -1.0)]
    quoted = read_state([("q", '"a man - a woman"')])
    assert (quoted.q, quoted.all_terms) == ('"a man - a woman"', (PageTerm("a man - a woman"),))
    assert PageState().only("a man - a woman", False) == quoted  # a sentence of the index is one, whatever is in it


def test_chips_do_not_double() -> None:
    chips = [("term", "s:dog"), ("weight", "1"), ("term", "s:snow"), ("weight", "-1")]
    state = read_state([("q", "snow + cat"), *chips])
    assert state.terms == (PageTerm("dog"), PageTerm("snow"), PageTerm("cat"))  # the weight that was said last
    assert read_state([("q", "dog"), *chips]).all_terms == (PageTerm("dog"), PageTerm("snow", False, -1.0))
    assert read_state([*chips, *chips]).terms == read_state(chips).terms
    assert read_state([("q", "- people"), *chips]).terms[-1] == PageTerm("people", False, -1.0)


def test_a_list_goes_on_page_after_page() -> None:
    state, seen = PageState("dog"), 0
    while state.after + state.top < MOST_PLACES:
        assert state.top <= MOST_TOP
        state = state.more()
        seen = max(seen, state.top)
    assert seen == 192  # then the next page begins
    assert PageState("dog", top=192).more() == PageState("dog", after=192)
    assert PageState("dog", after=192).before() == PageState("dog", top=192)
    assert PageState("dog", top=48, after=24).stretch().request()["offset"] == 72
    assert PageState("dog", after=192).adding("x", 1.0).after == 0


def test_another_term_is_added_or_taken_away() -> None:
    assert read_state([("q", "a"), ("more", "snow"), ("as", "-")]).terms == (PageTerm("snow", False, -1.0),)
    assert read_state([("q", "a"), ("more", "snow")]).terms == (PageTerm("snow"),)


def test_a_term_that_is_there_gets_the_new_weight() -> None:
    state = PageState(terms=(PageTerm("x", True), PageTerm("x", False)))
    assert state.adding("x", -1.0).terms == (PageTerm("x", False), PageTerm("x", True, -1.0))


def test_what_only_subtracts_goes_with_the_last_that_adds() -> None:
    state = PageState(terms=(PageTerm("dog"), PageTerm("snow", False, -1.0)))
    assert not state.dropping(0).asks
    assert state.dropping(1).terms == (PageTerm("dog"),)
    assert PageState("grass", state.terms).dropping(0).terms == (PageTerm("snow", False, -1.0),)


def test_rows_of_the_form_become_conditions() -> None:
    row = [("column", "album"), ("op", "!="), ("value", "holiday")]
    assert read_state(row).where == ("album!=holiday",)
    assert read_state([("column", "n"), ("op", "<"), ("value", "=3")]).where == ('n<"=3"',)
    assert read_state([("column", ""), ("op", "="), ("value", "x")]).where == ()
    assert read_state([("where", "a=1"), ("where", "a=1"), *row]).where == ("a=1", "album!=holiday")


def test_each_filter_can_be_cleared() -> None:
    state = PageState("dog", path="a", since="2024", until="2025", sure=True, where=("x=1", "y=2"), top=80)
    assert state.filters == 6
    assert state.cleared("where:0").where == ("y=2",)
    assert state.cleared("since").since == ""
    assert state.cleared("filters") == PageState("dog")
    assert state.cleared("path").top == PER_PAGE


def test_dates_are_conditions_too() -> None:
    assert PageState("a", since="2024-01-01", until="2024-02-01", where=("x=1",)).request()["where"] == [
        "date>=2024-01-01",
        "date<=2024-02-01",
        "x=1",
    ]


@pytest.mark.parametrize(
    ("kind", "terms", "can"),
    [
        ("picture", (PageTerm("a"),), True),
        ("picture", (PageTerm("id", True),), False),
        ("sentence", (PageTerm("a"),), False),
        ("sentence", (PageTerm("id", True), PageTerm("a")), True),
    ],
)
def test_reranking_needs_a_term_of_the_other_kind(kind: str, terms: tuple[PageTerm, ...], can: bool) -> None:
    assert PageState(terms=terms, kind=kind).can_rerank is can  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        [("term", "snow")],
        [("term", "s:")],
        [("term", "s:snow"), ("weight", "much")],
        [("term", "s:snow"), ("weight", "0")],
        [("term", "s:snow"), ("weight", "nan")],
        [("column", "a"), ("op", "like"), ("value", "b")],
        [("q", "+ dog + ")],
    ],
)
def test_what_means_nothing_is_refused(given: list[tuple[str, str]]) -> None:
    with pytest.raises(DiptychError):
        read_state(given)


@pytest.mark.parametrize("text", ["", "-3", "9" * 20, "²", "x"])
def test_an_odd_count_is_as_usual(text: str) -> None:
    assert read_state([("top", text)]).top == PER_PAGE


def test_a_count_has_an_end() -> None:
    assert read_state([("top", "100000")]).top == MOST_TOP
    assert read_state([("top", "0")]).top == 1
