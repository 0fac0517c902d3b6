"""What the templates of the page show: answers as cards, filters as chips, and lines of text about both."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from diptych.web.page.state import OPERATORS, PageState
from diptych.web.schemas import Duplicate, FoundEntry, SearchAnswer

if TYPE_CHECKING:
    from diptych.web.service.service import Service

SAMPLE = 12
# A sample is spread over so many entries at most, so that the start page of a large index is quick too.
LOOKED_AT = 600
WEIGHTS = (2.0, 1.0, 0.5, -0.5, -1.0, -2.0)


@dataclass(frozen=True)
class Named:
    """A picture to show: its id and its path, from the folder that was indexed."""

    id: str
    path: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """What stands before it."""
        return self.path[: len(self.path) - len(self.name)]


@dataclass(frozen=True)
class Twin(Named):
    """A near duplicate of a result, and the address that explains it."""

    why: str | None = None


@dataclass(frozen=True)
class Card(Named):
    """One result.

    move: places that re-ranking moved it up, negative for down; None without re-ranking
    why: the address that explains it; None where it takes a picture and there is none
    """

    kind: str
    text: str
    score: float
    confidence: float | None
    move: int | None
    why: str | None
    duplicates: tuple[Twin, ...]
    can_show: bool


@dataclass(frozen=True)
class Chip:
    """A filter that is set: its name in `PageState.cleared`, and how it reads."""

    name: str
    text: str


def cards_of(state: PageState, answer: SearchAnswer, reranked: bool) -> list[Card]:
    """The results of an answer."""
    # Among what is shown: folded duplicates and what a filter hides would count as places otherwise.
    before = sorted(result.place_before for result in answer.results if result.place_before is not None)
    cards = []
    for place, result in enumerate(answer.results):
        moved = before.index(result.place_before) - place if reranked and result.place_before is not None else None
        cards.append(_card(state, result, moved))
    return cards


def _card(state: PageState, result: FoundEntry, moved: int | None) -> Card:
    duplicates = tuple(Twin(twin.id, twin.path, _why(state, result, twin)) for twin in result.duplicates)
    return Card(
        result.id, result.path, result.kind, result.text, result.score, result.confidence, moved,
        _why(state, result, result), duplicates, result.picture is not None,
    )  # fmt: skip


def _why(state: PageState, result: FoundEntry, shown: FoundEntry | Duplicate) -> str | None:
    model = "reranker" if state.rerank and state.can_rerank else None
    if result.kind == "picture":
        return state.url("/why", id=shown.id, sentence=state.sentence or None, model=model)
    if not state.picture:
        return None
    return state.url("/why", id=state.picture, sentence=result.text, model=model)


def chips_of(state: PageState) -> list[Chip]:
    """The filters that are set."""
    chips = [Chip("path", f"in {state.path}")] if state.path else []
    chips += [Chip("since", f"from {state.since}")] if state.since else []
    chips += [Chip("until", f"to {state.until}")] if state.until else []
    chips += [Chip("sure", "only what matches")] if state.sure else []
    return chips + [Chip(f"where:{place}", text) for place, text in enumerate(state.where)]


def weights_of(weight: float) -> list[float]:
    """The weights to choose from, with the one that is set."""
    return sorted({*WEIGHTS, weight}, reverse=True)


def columns_of(overview: Mapping[str, Any]) -> list[str]:
    """Columns that a filter can be written for."""
    return [name for name in overview["columns"] if name and not any(sign in name for sign in OPERATORS | {"!": ""})]


def title_of(state: PageState) -> str:
    """The title of the page: what is looked for."""
    said = [
        ("− " if term.weight < 0 else "") + ("picture" if term.is_picture else term.value) for term in state.all_terms
    ]
    return f"{', '.join(said)} · Diptych" if said else "Diptych"


def status_of(state: PageState, answer: SearchAnswer) -> str:
    """How many results there are, and how long it took, for eyes and ears."""
    count, noun = len(answer.results), "picture" if state.kind == "picture" else "sentence"
    told = f"{count} {noun}{'' if count == 1 else 's'}"
    if answer.matches is False and count:
        told = f"The nearest {told}"
    elif count > 1:
        told += ", best first"
    total = answer.timings.get("total")
    seconds = "" if total is None else f" · {total:.2f} s"
    return told + ("" if answer.exact else " · approximate search") + seconds


def facts_of(overview: Mapping[str, Any]) -> str:
    """What the server holds, in a line."""
    held = [
        f"{overview[name]:,} {name if overview[name] != 1 else name.removesuffix('s')}"
        for name in ("pictures", "sentences")
        if overview[name]
    ]
    models = [f"model {overview['model']}"] if overview["model"] else []
    models += [f"re-ranked by {overview['reranker']}"] if overview["reranker"] else []
    return " · ".join([*held, *models])


def picture_names(service: "Service", state: PageState) -> dict[str, str]:
    """Names of the pictures among the terms, by id; those that were sent have none."""
    names = {}
    for term in state.terms:
        path = service.entries.shown_path(term.value) if term.is_picture else None
        if path is not None:
            names[term.value] = path
    return names


def sample_of(service: "Service", count: int = SAMPLE) -> list[Named]:
    """Some pictures of the index, spread over its first entries."""
    keys = [stamp.key for stamp in islice(service.index.store.stamps(), LOOKED_AT)]
    keys = [key for key in keys if service.folders.may_show(key)]
    step = max(1, len(keys) // (2 * count))
    entries = service.index.store.get(keys[::step], locals=False)
    shown = [entry.key for entry in entries if entry is not None and entry.kind == "picture"]
    step = max(1, len(shown) // count)
    return [Named(service.ids.of(key), service.folders.shown(key)) for key in shown[::step][:count]]
