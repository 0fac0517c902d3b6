"""Why a page shows no results, and what would."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diptych.web.page.state import PageState
from diptych.web.page.view import chips_of, counted
from diptych.web.schemas import SearchAnswer, SearchRequest

if TYPE_CHECKING:
    from diptych.web.service.service import Service

# A filter is counted without for each of so many at most.
MOST_TRIED = 6


@dataclass(frozen=True)
class WayOut:
    """A link that leads to results."""

    text: str
    url: str


@dataclass(frozen=True)
class Nothing:
    """Why nothing is shown, in a title and a sentence, and what to do about it."""

    title: str
    sentence: str
    ways: tuple[WayOut, ...] = ()


def why_nothing(service: "Service", state: PageState, request: SearchRequest, answer: SearchAnswer) -> Nothing:
    """The reason for an answer without results: the filters, confidence, or that there is nothing there."""
    kind = state.kind
    if state.after:
        return Nothing("The list ends before this", "", (WayOut("To the first results", state.from_the_start().url()),))
    if answer.left_out:
        best = f"the nearest is {int((answer.best or 0) * 100)}\u00a0% sure"
        seen = counted(answer.left_out, kind)
        among = f"; the filters let only {seen} through" if state.filters > 1 else ""
        return Nothing(
            "Nothing matches well enough",
            f"“Only what matches” shows what is at least 90\u00a0% sure, and {best}{among}.",
            (WayOut("Show the nearest all the same", state.cleared("sure").url()),),
        )
    if service.fitting(request.model_copy(update={"where": [], "path": None})) == 0:
        return Nothing(f"There are no {kind}s here", f"The index holds no {kind}s to look for.")
    chips = [chip for chip in chips_of(state) if chip.name != "sure"]
    if not chips or service.fitting(request):
        return Nothing("Nothing was found", "Nothing that is there can be compared with this.")
    ways = []
    for chip in chips[:MOST_TRIED] if len(chips) > 1 else ():
        without = state.cleared(chip.name)
        count = service.fitting(SearchRequest.model_validate(without.request() | {"rerank": False}))
        if count:
            ways.append(WayOut(f"Without “{chip.text}”: {counted(count, kind)}", without.url()))
    ways.append(WayOut("Search without filters", state.cleared("filters").url()))
    together = "this filter" if len(chips) == 1 else f"these {len(chips)} filters together"
    named = ", ".join(f"“{chip.text}”" for chip in chips)
    return Nothing("The filters leave nothing", f"No {kind} passes {together}: {named}.", tuple(ways))
