"""What the templates of the page show: answers as cards, filters as chips, and lines of text about both."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from diptych.web.page.state import OPERATORS, ORDERS, PageState
from diptych.web.schemas import MOST_PLACES, Duplicate, FoundEntry, SearchAnswer, SearchFields

if TYPE_CHECKING:
    from diptych.web.service.service import Service

SAMPLE = 12
# A sample is spread over so many entries at most, so that the start page of a large index is quick too.
LOOKED_AT = 600
# Letters at the end of a name that are always seen: a number and an ending.
TAIL = 9
# How many re-ranking looks at where nothing else is said.
RERANKED = int(SearchFields.model_fields["depth"].default)
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

    @property
    def parts(self) -> tuple[str, str]:
        """The name in two: where there is no room for all of it the first is cut short, so that its end is seen."""
        cut = len(self.name) - TAIL if len(self.name) > 2 * TAIL else len(self.name)
        return self.name[:cut], self.name[cut:]


@dataclass(frozen=True)
class Twin(Named):
    """A near duplicate of a result, and the address that explains it."""

    why: str | None = None


@dataclass(frozen=True)
class Card(Named):
    """One result.

    move: places that re-ranking moved it up, negative for down; None without re-ranking, and where they are sorted
    stages: the two models' own scores, where there are two
    why: the address that explains it; None where it takes a picture and there is none
    media, second: of a video, its address and where in it the picture is; None for what does not play
    written: what is written in it, where the query's words stand there
    """

    kind: str
    text: str
    score: float
    confidence: float | None
    move: int | None
    stages: str
    why: str | None
    duplicates: tuple[Twin, ...]
    can_show: bool
    media: str | None = None
    second: float | None = None
    written: str = ""


@dataclass(frozen=True)
class Chip:
    """A filter that is set: its name in `PageState.cleared`, and how it reads."""

    name: str
    text: str


def cards_of(state: PageState, answer: SearchAnswer) -> list[Card]:
    """The results of an answer."""
    return [_card(state, result) for result in answer.results]


def _card(state: PageState, result: FoundEntry) -> Card:
    duplicates = tuple(Twin(twin.id, twin.path, _why(state, result, twin)) for twin in result.duplicates)
    stages = ""
    if result.retrieval is not None:
        again = "could not be compared again" if result.rerank is None else f"{result.rerank:.3f} when compared again"
        stages = f"{result.retrieval:.3f} when searching, {again}"
    return Card(
        result.id, result.path, result.kind, result.text, result.score, result.confidence,
        None if state.sort else result.moved, stages, _why(state, result, result), duplicates,
        result.picture is not None, result.media, result.second, result.written,
    )  # fmt: skip


def _why(state: PageState, result: FoundEntry, shown: FoundEntry | Duplicate) -> str | None:
    model = "reranker" if state.rerank and state.can_rerank else None
    if result.kind != "sentence":
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
    count = len(answer.results)
    told = counted(count, state.kind)
    if state.after:
        told = f"Places {state.after + 1:,} to {state.after + count + answer.left_out:,}: {told}"
    elif answer.matches is False and count:
        told = f"The nearest {told}"
    elif count > 1:
        told += f", {ORDERS.get(state.sort, 'sorted')}"
    if answer.left_out and count:
        told += f" · {answer.left_out} less sure {'is' if answer.left_out == 1 else 'are'} not shown"
    total = answer.timings.get("total")
    seconds = "" if total is None else " · at once" if total < 0.005 else f" · {total:.2f} s"
    return told + ("" if answer.exact else " · approximate search") + seconds


def end_of(state: PageState, answer: SearchAnswer, reranked: bool) -> str:
    """What is said behind the last result; empty where the list goes on, or where everything was shown."""
    if answer.more or not answer.results:
        return ""
    if state.after + state.top >= MOST_PLACES:
        return f"These were the best {MOST_PLACES:,}. Say it more closely, or filter, to see others."
    if reranked and len(answer.results) + state.after >= RERANKED:
        return f"These were the best {RERANKED}: no more are compared again. Without re-ranking the list goes on."
    if state.sure and answer.left_out:
        return "Behind these, nothing is sure enough to be called a match."
    return ""


def counted(count: int, kind: str) -> str:
    """Such as `1 picture` or `1,234 sentences`."""
    return f"{count:,} {kind}{'' if count == 1 else 's'}"


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
