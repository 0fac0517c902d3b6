"""Searches as they are asked for, to searches of the index, and their results as they are told."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from diptych.common.errors import DiptychError
from diptych.search.asking.options import Options
from diptych.search.asking.query import Picture, SearchQuery, Term, parse_filter, parse_typed, path_filter
from diptych.search.asking.rerank import Rerank
from diptych.search.asking.results import RankedResults, Result
from diptych.search.asking.sorting import Sort, parse_sort, sorted_results
from diptych.search.index import Index
from diptych.search.stores.conditions import check_conditions
from diptych.search.stores.store import Condition
from diptych.web.schemas import (
    MOST_CHARACTERS,
    MOST_PLACES,
    MOST_TERMS,
    Duplicate,
    FoundEntry,
    PictureTerm,
    SearchAnswer,
    SearchFields,
    SearchRequest,
    TextTerm,
)
from diptych.web.service.folders import Folders
from diptych.web.service.ids import Ids

# Lists that go further than this are searched for beside those of pictures, so that they keep nobody waiting.
FIRST_PLACES = 250
# A pattern with more stars than this can take very long to compare.
MOST_STARS = 4


@dataclass(frozen=True)
class Window:
    """The stretch of a list that is told: `top` places from `offset` on, without what is not sure enough.

    sort: the order of the stretch; which results it has is decided by the best first all the same
    """

    offset: int
    top: int
    least_confidence: float | None = None
    sort: Sort | None = None

    @property
    def end(self) -> int:
        """The last place of it, from 1."""
        return min(self.offset + self.top, MOST_PLACES)


@dataclass(frozen=True)
class Job:
    """One search: its terms, what opens those that are ids, how to search, and what to tell of it."""

    terms: tuple[TextTerm | PictureTerm, ...]
    options: Options
    window: Window
    picture: Picture | None = None

    @property
    def plain(self) -> bool:
        """Whether it is one sentence and not far down, which is the quickest and most frequent."""
        one = self.picture is None and len(self.terms) == 1 and isinstance(self.terms[0], TextTerm)
        return one and self.window.end <= FIRST_PLACES


def job_of(request: SearchRequest, reranker: str | None, picture: Picture | None = None) -> Job:
    """A request as a job; an error where it cannot be done."""
    check_terms(request.terms, picture is not None)
    sort = None if request.sort is None else parse_sort(request.sort)
    window = Window(request.offset, request.top, request.least_confidence, sort)
    return Job(tuple(request.terms), options_of(request, reranker, window), window, picture)


def check_terms(terms: Sequence[TextTerm | PictureTerm], more: bool = False) -> None:
    """Refuse a query that looks for nothing, before it waits for anything."""
    if any(isinstance(term, TextTerm) and not term.text.strip() for term in terms):
        raise DiptychError("terms: a sentence is empty")
    if not more and not any(term.weight > 0 for term in terms):
        raise DiptychError("terms: expected at least one sentence or picture to look for, with a weight above 0")


def options_of(request: SearchFields, reranker: str | None, window: Window) -> Options:
    """How to search, with the filters read: for one more than is told, and without regard to confidence.

    So it is known whether the list goes on, and how many are left out for their confidence.
    """
    where = conditions_of(request)
    top, rerank = window.end + 1, None
    if request.rerank:
        if reranker is None:
            raise DiptychError("rerank: this server has no re-ranking model; start it with --rerank MODEL")
        rerank = Rerank(reranker, request.depth, request.fusion)
        top = max(top, request.depth)  # how far each moved is told among all of them
    return Options(top, request.kind, tuple(where), request.threshold, None, True, rerank, request.group)


def conditions_of(request: SearchFields) -> list[Condition]:
    """The filters of a request."""
    where = [parse_filter(text) for text in request.where]
    if any(condition.field == "path" for condition in where) or (request.path or "").startswith("/"):
        raise DiptychError("path: expected a pattern of paths as answers show them, in the field `path`")
    if request.path:
        where.append(path_filter(request.path))
    check_filters(where)
    return where


def check_filters(where: Sequence[Condition]) -> None:
    """Refuse filters that mean nothing, and patterns that take too long."""
    for condition in where:
        if (
            condition.operator == "matches"
            and len(re.sub(r"\*+", "*", str(condition.value)).split("*")) > MOST_STARS + 2
        ):
            raise DiptychError(f"filter {condition.field!r}: a pattern has at most {MOST_STARS} stars")
    check_conditions(where)


def terms_of_line(line: str) -> list[TextTerm | PictureTerm]:
    """A line as people type it, as terms; @ID names an entry or an upload."""
    try:
        typed = parse_typed(line)
    except (ValueError, RuntimeError):  # a home folder that there is not, in what reads like a path
        raise DiptychError(f"query {line!r}: expected the id of an entry or an upload after @") from None
    if len(typed) > MOST_TERMS:
        raise DiptychError(f"query: {len(typed)} terms; at most {MOST_TERMS} are taken")
    terms: list[TextTerm | PictureTerm] = []
    for term in typed:
        if not math.isfinite(term.weight) or abs(term.weight) > 10:
            raise DiptychError(f"query: a weight of {abs(term.weight):g}; expected at most 10")
        if isinstance(term.value, str):
            if len(term.value) > MOST_CHARACTERS:
                raise DiptychError(f"query: a sentence of more than {MOST_CHARACTERS} characters")
            terms.append(TextTerm.model_construct(text=term.value, weight=term.weight))
        else:
            # On a command line this would be a path; here it is an id, and no path is ever looked at.
            terms.append(PictureTerm.model_construct(id=str(term.value), weight=term.weight))
    return terms


class Finder:
    """Runs jobs on an index.

    open_id: what a term's id stands for: a picture, a sentence, or a vector
    originals: whether files are given away as they are, which a video that plays is
    timed: told what each stage of searches that went together took
    """

    def __init__(
        self,
        index: Index,
        ids: Ids,
        folders: Folders,
        open_id: Callable[[str], object],
        originals: bool = True,
        timed: Callable[[Mapping[str, float]], None] = lambda _: None,
    ) -> None:
        self.index = index
        self.ids = ids
        self.folders = folders
        self._open_id = open_id
        self._originals = originals
        self._timed = timed

    def query(self, terms: Sequence[TextTerm | PictureTerm], picture: Picture | None = None) -> SearchQuery:
        """Terms as the index takes them."""
        own = [Term(picture)] if picture is not None else []
        for term in terms:
            value = term.text if isinstance(term, TextTerm) else self._open_id(term.id)
            own.append(Term(value, round(term.weight, 2)))  # type: ignore[arg-type]
        return SearchQuery(tuple(own))

    def run(self, jobs: Sequence[Job]) -> list[SearchAnswer | Exception]:
        """Answers in the order of the jobs; those with the same options are embedded and retrieved together."""
        answers: list[SearchAnswer | Exception | None] = [None] * len(jobs)
        groups: dict[Options, list[tuple[int, SearchQuery]]] = {}
        for place, job in enumerate(jobs):
            try:
                groups.setdefault(job.options, []).append((place, self.query(job.terms, job.picture)))
            except Exception as error:
                answers[place] = error
        for options, group in groups.items():
            together = self._together([query for _, query in group], options)
            for (place, query), answer in zip(group, together, strict=True):
                try:
                    answers[place] = answer if isinstance(answer, Exception) else self.tell(query, answer, jobs[place])
                except DiptychError as error:  # a column to sort by that there is not
                    answers[place] = error
        return [answer for answer in answers if answer is not None]

    def _together(self, queries: Sequence[SearchQuery], options: Options) -> Sequence[RankedResults | Exception]:
        try:
            found = self.index.searcher.search(queries, options)
            self._timed(found[0].timings)
            return found
        except Exception as error:
            if len(queries) == 1:
                return [error]
        # One of them is at fault, and only that one shall hear of it.
        return [self._together([query], options)[0] for query in queries]

    def tell(self, query: SearchQuery, answer: RankedResults, job: Job) -> SearchAnswer:
        """An answer of the index for the outside: ids, and paths from the indexed folders."""
        window, options = job.window, job.options
        before = self._places(query, options) if options.rerank is not None else {}
        kept = [result for result in answer.results if _sure(result, window)]
        moved = _moves([before.get(result.key) for result in kept])
        moves = {result.key: places for result, places in zip(kept, moved, strict=True)}
        stretch = answer.results[window.offset : window.end]
        shown = [result for result in stretch if _sure(result, window)]
        if window.sort is not None:
            shown = sorted_results(shown, window.sort)
        confidences = [result.confidence for result in answer.results if result.confidence is not None]
        goes_on = len(answer.results) > window.end and window.end < MOST_PLACES
        return SearchAnswer.model_construct(
            results=[self._found(result, before.get(result.key), moves.get(result.key)) for result in shown],
            timings={name: round(seconds, 6) for name, seconds in answer.timings.items()},
            matches=replace(answer, results=kept).matches,
            exact=answer.exact,
            more=goes_on and bool(shown),  # where none of a stretch is sure enough, further ones are not either
            left_out=len(stretch) - len(shown),
            best=round(max(confidences), 4) if confidences else None,
        )

    def _places(self, query: SearchQuery, options: Options) -> dict[str, int]:
        """The places, from 1, of what is found without the second stage."""
        first = replace(options, rerank=None, threshold=None, group=None, confidence=False)
        retrieved = self.index.searcher.search([query], first)[0].results
        return {result.key: place for place, result in enumerate(retrieved, 1)}

    def _found(self, result: Result, place_before: int | None, moved: int | None) -> FoundEntry:
        id = self.ids.of(result.key)
        shown = result.kind == "picture" and self.folders.may_show(result.key)
        return FoundEntry.model_construct(
            id=id,
            path=self.folders.shown(result.key),
            score=round(result.score, 6),
            confidence=None if result.confidence is None else round(result.confidence, 4),
            kind=result.kind if result.second is None else "video",
            text=result.text,
            metadata=result.metadata,
            retrieval=None if result.retrieval is None else round(result.retrieval, 6),
            rerank=None if result.rerank is None else round(result.rerank, 6),
            place_before=place_before,
            moved=moved,
            duplicates=[
                Duplicate.model_construct(id=self.ids.of(key), path=self.folders.shown(key))
                for key in result.duplicates
            ],
            picture=f"/pictures/{id}" if shown else None,
            date=result.date,
            dated=result.dated,
            written=result.written,
            second=result.second,
            media=f"/media/{id}" if shown and result.second is not None and self._originals else None,
        )


def _sure(result: Result, window: Window) -> bool:
    """Whether a result is told: its words are written in it, or its confidence is enough."""
    least = window.least_confidence
    return least is None or bool(result.written) or (result.confidence or 0.0) >= least


def _moves(before: Sequence[int | None]) -> list[int | None]:
    """How many places each went up: its place now against its place then among the same."""
    then = {place: rank for rank, place in enumerate(sorted(place for place in before if place is not None))}
    return [None if place is None else then[place] - now for now, place in enumerate(before)]
