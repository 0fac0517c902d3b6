"""Searches as they are asked for, to searches of the index, and their results as they are told."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from diptych.common.errors import DiptychError
from diptych.search.asking.options import Options
from diptych.search.asking.query import Picture, SearchQuery, Term, parse_filter, parse_line, path_filter
from diptych.search.asking.rerank import Rerank
from diptych.search.asking.results import RankedResults
from diptych.search.index import Index
from diptych.search.stores.conditions import check_conditions
from diptych.search.stores.store import Condition
from diptych.web.schemas import (
    MOST_CHARACTERS,
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

# A pattern with more stars than this can take very long to compare.
MOST_STARS = 4


@dataclass(frozen=True)
class Job:
    """One search: its terms, what opens those that are ids, and how to search."""

    terms: tuple[TextTerm | PictureTerm, ...]
    options: Options
    picture: Picture | None = None

    @property
    def plain(self) -> bool:
        """Whether it is one sentence, which is the quickest and most frequent."""
        return self.picture is None and len(self.terms) == 1 and isinstance(self.terms[0], TextTerm)


def job_of(request: SearchRequest, reranker: str | None, picture: Picture | None = None) -> Job:
    """A request as a job; an error where it cannot be done."""
    check_terms(request.terms, picture is not None)
    return Job(tuple(request.terms), options_of(request, reranker), picture)


def check_terms(terms: Sequence[TextTerm | PictureTerm], more: bool = False) -> None:
    """Refuse a query that looks for nothing, before it waits for anything."""
    if any(isinstance(term, TextTerm) and not term.text.strip() for term in terms):
        raise DiptychError("terms: a sentence is empty")
    if not more and not any(term.weight > 0 for term in terms):
        raise DiptychError("terms: expected at least one sentence or picture to look for, with a weight above 0")


def options_of(request: SearchFields, reranker: str | None) -> Options:
    """How to search, with the filters read."""
    where = [parse_filter(text) for text in request.where]
    if any(condition.field == "path" for condition in where) or (request.path or "").startswith("/"):
        raise DiptychError("path: expected a pattern of paths as answers show them, in the field `path`")
    if request.path:
        where.append(path_filter(request.path))
    check_filters(where)
    rerank = None
    if request.rerank:
        if reranker is None:
            raise DiptychError("rerank: this server has no re-ranking model; start it with --rerank MODEL")
        rerank = Rerank(reranker, request.depth, request.fusion)
    return Options(
        request.top, request.kind, tuple(where), request.threshold, request.least_confidence, True, rerank,
        request.group,
    )  # fmt: skip


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
        query = parse_line(line)
    except (ValueError, RuntimeError):  # a home folder that there is not, in what reads like a path
        raise DiptychError(f"query {line!r}: expected the id of an entry or an upload after @") from None
    if len(query.terms) > MOST_TERMS:
        raise DiptychError(f"query: {len(query.terms)} terms; at most {MOST_TERMS} are taken")
    terms: list[TextTerm | PictureTerm] = []
    for term in query.terms:
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
    """

    def __init__(self, index: Index, ids: Ids, folders: Folders, open_id: Callable[[str], object]) -> None:
        self.index = index
        self.ids = ids
        self.folders = folders
        self._open_id = open_id

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
                answers[place] = answer if isinstance(answer, Exception) else self.tell(query, answer, options)
        return [answer for answer in answers if answer is not None]

    def _together(self, queries: Sequence[SearchQuery], options: Options) -> Sequence[RankedResults | Exception]:
        try:
            return self.index.searcher.search(queries, options)
        except Exception as error:
            if len(queries) == 1:
                return [error]
        # One of them is at fault, and only that one shall hear of it.
        return [self._together([query], options)[0] for query in queries]

    def tell(self, query: SearchQuery, answer: RankedResults, options: Options) -> SearchAnswer:
        """An answer of the index for the outside: ids, and paths from the indexed folders."""
        before: dict[str, int] = {}
        if options.rerank is not None:
            pool = max(options.top, options.rerank.depth)
            first = replace(options, top=pool, rerank=None, threshold=None, least_confidence=None, group=None)
            retrieved = self.index.searcher.search([query], replace(first, confidence=False))[0].results
            before = {result.key: place for place, result in enumerate(retrieved, 1)}
        results = []
        for result in answer.results:
            id = self.ids.of(result.key)
            shown = result.kind == "picture" and self.folders.may_show(result.key)
            results.append(
                FoundEntry.model_construct(
                    id=id,
                    path=self.folders.shown(result.key),
                    score=round(result.score, 6),
                    confidence=None if result.confidence is None else round(result.confidence, 4),
                    kind=result.kind,
                    text=result.text,
                    metadata=result.metadata,
                    retrieval=None if result.retrieval is None else round(result.retrieval, 6),
                    rerank=None if result.rerank is None else round(result.rerank, 6),
                    place_before=before.get(result.key),
                    duplicates=[
                        Duplicate.model_construct(id=self.ids.of(key), path=self.folders.shown(key))
                        for key in result.duplicates
                    ],
                    picture=f"/pictures/{id}" if shown else None,
                )
            )
        timings = {name: round(seconds, 6) for name, seconds in answer.timings.items()}
        return SearchAnswer.model_construct(
            results=results, timings=timings, matches=answer.matches, exact=answer.exact
        )
