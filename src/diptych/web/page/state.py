"""What the page shows, as its address holds it: terms, filters, switches. Every link on the page is such a state."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from diptych.common.errors import DiptychError
from diptych.search.asking.duplicates import NEAR
from diptych.search.asking.query import typed_words
from diptych.search.asking.results import MATCHES
from diptych.search.stores.store import Kind
from diptych.web.schemas import MOST_PLACES, MOST_TOP, TextTerm
from diptych.web.service.finding import terms_of_line

PER_PAGE = 24
# How many the script asks for at a time when a list goes on.
STRETCH = 48
# What a form calls an operator, and what people call it.
OPERATORS = {"=": "is", "!=": "is not", "~": "is like", ">=": "at least", "<=": "at most", ">": "above", "<": "below"}
# Orders of results to choose from.
ORDERS = {"": "best first", "-date": "newest first", "date": "oldest first", "path": "by path"}
_NEEDS_QUOTES = re.compile(r"^[<>=!~]|^\s|\s$")


@dataclass(frozen=True)
class PageTerm:
    """One chip: a sentence, or a picture by its id; negative weights push away."""

    value: str
    is_picture: bool = False
    weight: float = 1.0

    @property
    def written(self) -> str:
        """As the address holds it, beside its weight."""
        return f"{'p' if self.is_picture else 's'}:{self.value}"


@dataclass(frozen=True)
class PageState:
    """Everything that an address says.

    q: what stands in the search box; terms: the chips
    where: conditions on columns as people write them; since, until: dates
    group: near duplicates as one; sure: only what matches
    top: how many are asked for; after: how many come before them and are left out
    sort: the order of what was found, as `parse_sort` reads it; empty for best first
    """

    q: str = ""
    terms: tuple[PageTerm, ...] = ()
    kind: Kind = "picture"
    rerank: bool = False
    group: bool = False
    sure: bool = False
    path: str = ""
    since: str = ""
    until: str = ""
    where: tuple[str, ...] = ()
    top: int = PER_PAGE
    sort: str = ""
    after: int = 0

    @property
    def asks(self) -> bool:
        """Whether anything is searched for."""
        return bool(self.q or self.terms)

    @property
    def all_terms(self) -> tuple[PageTerm, ...]:
        """The search box and the chips."""
        return (*((PageTerm(" ".join(typed_words(self.q))),) if self.q else ()), *self.terms)

    @property
    def can_rerank(self) -> bool:
        """Re-ranking compares a picture with a sentence: the query needs a term of the other kind."""
        return any(term.is_picture == (self.kind == "sentence") for term in self.all_terms)

    @property
    def sentence(self) -> str:
        """The sentence that results are explained with: the one that weighs most; empty where there is none."""
        sentences = [term for term in self.all_terms if not term.is_picture and term.weight > 0]
        return max(sentences, key=lambda term: term.weight).value if sentences else ""

    @property
    def picture(self) -> str:
        """The picture that is looked for; empty where there is none."""
        pictures = [term for term in self.all_terms if term.is_picture and term.weight > 0]
        return max(pictures, key=lambda term: term.weight).value if pictures else ""

    @property
    def filters(self) -> int:
        """How many filters are set."""
        return len(self.where) + sum(bool(value) for value in (self.path, self.since, self.until, self.sure))

    def items(self) -> list[tuple[str, str]]:
        """Names and values for an address; what is as usual is left out."""
        items = [("q", self.q)] if self.q else []
        for term in self.terms:
            items += [("term", term.written), ("weight", f"{term.weight:g}")]
        if self.kind != "picture":
            items.append(("kind", self.kind))
        items += [(name, "1") for name in ("rerank", "group", "sure") if getattr(self, name)]
        named = {"path": self.path, "from": self.since, "to": self.until, "sort": self.sort}
        items += [(name, value) for name, value in named.items() if value]
        items += [("where", text) for text in self.where]
        if self.top != PER_PAGE:
            items.append(("top", str(self.top)))
        if self.after:
            items.append(("after", str(self.after)))
        return items

    def url(self, path: str = "/", **more: str | None) -> str:
        """The address of this state; `more` are further values, None for none."""
        items = [*self.items(), *((name, value) for name, value in more.items() if value is not None)]
        return f"{path}?{urlencode(items)}" if items else path

    # Where the links of a page lead.

    def adding(self, value: str, weight: float, is_picture: bool = True) -> "PageState":
        """With one more term, or with another weight where it is there already."""
        return replace(self, terms=_joined(self.terms, (PageTerm(value, is_picture, weight),))).from_the_start()

    def dropping(self, place: int) -> "PageState":
        """Without a chip; the last one to be looked for takes with it those that only subtract."""
        kept = self.terms[:place] + self.terms[place + 1 :]
        if not self.q and not any(term.weight > 0 for term in kept):
            kept = ()
        return replace(self, terms=kept).from_the_start()

    def only(self, value: str, is_picture: bool = True, kind: Kind = "picture") -> "PageState":
        """The same filters, with one thing to look for."""
        terms = (PageTerm(value, True),) if is_picture else ()
        return replace(self, q="" if is_picture else _quoted(value), terms=terms, kind=kind).from_the_start()

    def cleared(self, name: str) -> "PageState":
        """Without one filter or switch; `where:PLACE` is a condition, `filters` is all of them."""
        if name == "filters":
            return replace(self, path="", since="", until="", sure=False, where=()).from_the_start()
        if name.startswith("where:"):
            place = int(name.removeprefix("where:"))
            return replace(self, where=self.where[:place] + self.where[place + 1 :]).from_the_start()
        plain = PageState()
        return replace(self, **{name: getattr(plain, name)}).from_the_start()

    def without_terms(self) -> "PageState":
        """The same filters, with nothing to look for."""
        return replace(self, q="", terms=()).from_the_start()

    def from_the_start(self) -> "PageState":
        """The first results."""
        return replace(self, top=PER_PAGE, after=0)

    def more(self) -> "PageState":
        """With more results; where a page would have too many of them, the next page."""
        if self.top + PER_PAGE <= MOST_TOP:
            return replace(self, top=self.top + PER_PAGE)
        return replace(self, top=PER_PAGE, after=self.after + self.top)

    def before(self) -> "PageState":
        """The page before."""
        return replace(self, top=min(self.after, MOST_TOP), after=max(0, self.after - MOST_TOP))

    def stretch(self) -> "PageState":
        """What comes next, alone."""
        return replace(self, top=STRETCH, after=self.after + self.top)

    def request(self) -> dict[str, Any]:
        """As the API takes it."""
        terms: list[dict[str, Any]] = [
            {"id" if term.is_picture else "text": term.value, "weight": term.weight} for term in self.all_terms
        ]
        dates = [f"date{op}{day}" for op, day in ((">=", self.since), ("<=", self.until)) if day]
        return {
            "terms": terms,
            "kind": self.kind,
            "top": self.top,
            "offset": self.after,
            "where": [*dates, *self.where],
            "path": self.path or None,
            "least_confidence": MATCHES if self.sure else None,
            "rerank": self.rerank and self.can_rerank,
            "group": NEAR if self.group else None,
            "sort": self.sort or None,
        }


def read_state(given: Iterable[tuple[str, str]]) -> PageState:
    """The state that an address or a form holds.

    A line such as `two dogs - snow` in the box becomes chips; one that is there already gets the new weight.
    """
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value.strip())

    def one(name: str) -> str:
        return values.get(name, [""])[-1]

    state = PageState(
        q=one("q"),
        terms=_joined((), _terms(values.get("term", []), values.get("weight", []))),
        kind="sentence" if one("kind") == "sentence" else "picture",
        rerank=one("rerank") in ("1", "true", "on"),
        group=one("group") in ("1", "true", "on"),
        sure=one("sure") in ("1", "true", "on"),
        path=one("path"),
        since=one("from"),
        until=one("to"),
        where=tuple(dict.fromkeys(text for text in [*values.get("where", []), *_conditions(values)] if text)),
        top=min(_count(one("top"), PER_PAGE), MOST_TOP),
        after=min(_count(one("after"), 0, least=0), MOST_PLACES - 1),
        sort=one("sort"),
    )
    typed = _written_terms(state.q) if state.q else []
    if len(typed) > 1 or any(term.is_picture or term.weight != 1 for term in typed):
        state = replace(state, q="", terms=_joined(state.terms, typed))
    elif typed:
        # What stands in the box is looked for already: a chip of the same would count it twice.
        state = replace(
            state, terms=tuple(t for t in state.terms if (t.value, t.is_picture) != (typed[0].value, False))
        )
    if one("more"):
        state = state.adding(one("more"), -1.0 if one("as") == "-" else 1.0, is_picture=False)
    return state


def _joined(terms: Sequence[PageTerm], more: Sequence[PageTerm]) -> tuple[PageTerm, ...]:
    """Each thing once, with the weight that was said last."""
    by_thing = {(term.value, term.is_picture): term for term in terms}
    for term in more:
        by_thing.pop((term.value, term.is_picture), None)
        by_thing[term.value, term.is_picture] = term
    return tuple(by_thing.values())


def _quoted(sentence: str) -> str:
    """A sentence as it is typed, so that no dash in it takes anything away."""
    return f'"{sentence}"' if any(word in ("+", "-") for word in sentence.split()) else sentence


def _terms(written: list[str], weights: list[str]) -> tuple[PageTerm, ...]:
    terms = []
    for place, text in enumerate(written):
        kind, _, value = text.partition(":")
        if kind not in ("s", "p") or not value:
            raise DiptychError(f"term {text!r}: expected s: and a sentence, or p: and the id of a picture")
        terms.append(PageTerm(value, kind == "p", _weight(weights[place] if place < len(weights) else "1")))
    return tuple(terms)


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight) or weight == 0:
        raise DiptychError(f"weight {text!r}: expected a number other than 0")
    return weight


def _count(text: str, usual: int, least: int = 1) -> int:
    return max(least, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else usual


def _written_terms(line: str) -> list[PageTerm]:
    """The terms of `two dogs - 2:snow`; @ names an id, never a file of this machine."""
    return [
        PageTerm(term.text, False, term.weight) if isinstance(term, TextTerm) else PageTerm(term.id, True, term.weight)
        for term in terms_of_line(line)
    ]


def _conditions(values: dict[str, list[str]]) -> list[str]:
    """Rows of the form, each a column, an operator and a value."""
    rows = zip(values.get("column", []), values.get("op", []), values.get("value", []), strict=False)
    conditions = []
    for column, operator, value in rows:
        if column and value:
            if operator not in OPERATORS:
                raise DiptychError(f"operator {operator!r}: expected one of {', '.join(OPERATORS)}")
            quoted = f'"{value}"' if _NEEDS_QUOTES.search(value) else value
            conditions.append(f"{column}{operator}{quoted}")
    return conditions
