"""What the page shows, as its address holds it: terms, filters, switches. Every link on the page is such a state."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from diptych.common.errors import DiptychError
from diptych.search.asking.duplicates import NEAR
from diptych.search.asking.results import MATCHES
from diptych.search.stores.store import Kind
from diptych.web.schemas import MOST_TOP, TextTerm
from diptych.web.service.finding import terms_of_line

PER_PAGE = 24
# What a form calls an operator, and what people call it.
OPERATORS = {"=": "is", "!=": "is not", "~": "is like", ">=": "at least", "<=": "at most", ">": "above", "<": "below"}
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
    group: near duplicates as one; sure: only what matches; top: how many are asked for
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

    @property
    def asks(self) -> bool:
        """Whether anything is searched for."""
        return bool(self.q or self.terms)

    @property
    def all_terms(self) -> tuple[PageTerm, ...]:
        """The search box and the chips."""
        return (*((PageTerm(self.q),) if self.q else ()), *self.terms)

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
        named = {"path": self.path, "from": self.since, "to": self.until}
        items += [(name, value) for name, value in named.items() if value]
        items += [("where", text) for text in self.where]
        if self.top != PER_PAGE:
            items.append(("top", str(self.top)))
        return items

    def url(self, path: str = "/", **more: str | None) -> str:
        """The address of this state; `more` are further values, None for none."""
        items = [*self.items(), *((name, value) for name, value in more.items() if value is not None)]
        return f"{path}?{urlencode(items)}" if items else path

    # Where the links of a page lead.

    def adding(self, value: str, weight: float, is_picture: bool = True) -> "PageState":
        """With one more term, or with another weight where it is there already."""
        kept = tuple(t for t in self.terms if (t.value, t.is_picture) != (value, is_picture))
        return replace(self, terms=(*kept, PageTerm(value, is_picture, weight)), top=PER_PAGE)

    def dropping(self, place: int) -> "PageState":
        """Without a chip; the last one to be looked for takes with it those that only subtract."""
        kept = self.terms[:place] + self.terms[place + 1 :]
        if not self.q and not any(term.weight > 0 for term in kept):
            kept = ()
        return replace(self, terms=kept, top=PER_PAGE)

    def only(self, value: str, is_picture: bool = True, kind: Kind = "picture") -> "PageState":
        """The same filters, with one thing to look for."""
        terms = (PageTerm(value, True),) if is_picture else ()
        return replace(self, q="" if is_picture else value, terms=terms, kind=kind, top=PER_PAGE)

    def cleared(self, name: str) -> "PageState":
        """Without one filter or switch; `where:PLACE` is a condition, `filters` is all of them."""
        if name == "filters":
            return replace(self, path="", since="", until="", sure=False, where=(), top=PER_PAGE)
        if name.startswith("where:"):
            place = int(name.removeprefix("where:"))
            return replace(self, where=self.where[:place] + self.where[place + 1 :], top=PER_PAGE)
        plain = PageState()
        return replace(self, **{name: getattr(plain, name)}, top=PER_PAGE)

    def more(self, count: int = PER_PAGE) -> "PageState":
        """With more results."""
        return replace(self, top=self.top + count)

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
            "where": [*dates, *self.where],
            "path": self.path or None,
            "least_confidence": MATCHES if self.sure else None,
            "rerank": self.rerank and self.can_rerank,
            "group": NEAR if self.group else None,
        }


def read_state(given: Iterable[tuple[str, str]]) -> PageState:
    """The state that an address or a form holds.

    A line such as `+ two dogs - snow` in the box becomes chips.
    """
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value.strip())

    def one(name: str) -> str:
        return values.get(name, [""])[-1]

    state = PageState(
        q=one("q"),
        terms=_terms(values.get("term", []), values.get("weight", [])),
        kind="sentence" if one("kind") == "sentence" else "picture",
        rerank=one("rerank") in ("1", "true", "on"),
        group=one("group") in ("1", "true", "on"),
        sure=one("sure") in ("1", "true", "on"),
        path=one("path"),
        since=one("from"),
        until=one("to"),
        where=tuple(dict.fromkeys(text for text in [*values.get("where", []), *_conditions(values)] if text)),
        top=min(_count(one("top")), MOST_TOP),
    )
    if state.q.startswith(("+ ", "- ")):
        state = replace(state, q="", terms=(*state.terms, *_written_terms(state.q)))
    if one("more"):
        state = state.adding(one("more"), -1.0 if one("as") == "-" else 1.0, is_picture=False)
    return state


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


def _count(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 9 else PER_PAGE


def _written_terms(line: str) -> list[PageTerm]:
    """The terms of `+ two dogs - 2:snow`; @ names an id, never a file of this machine."""
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
