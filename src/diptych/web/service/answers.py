"""Answers that were given before, for as long as the index is the same."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from diptych.web.schemas import PictureTerm, SearchAnswer, TextTerm
from diptych.web.service.finding import Job
from diptych.web.service.recent import Recent

# A result takes about so many bytes, with its path, its id and some columns.
RESULT_BYTES = 2000
MOST_BYTES = 64 << 20


class Answers:
    """What was found for a query, by the query and the state of the index; every method may be called by any thread.

    state: the state of the index, another after every change by whomever; None where it cannot be told
    most: most answers that are kept; 0 keeps none
    """

    def __init__(self, state: Callable[[], str | None], most: int) -> None:
        self._state = state
        self._most = most
        self._recent: Recent[SearchAnswer] = Recent(MOST_BYTES, max(1, most))

    def of(self, job: Job, begin: Callable[[Job], "Future[SearchAnswer]"]) -> "Future[SearchAnswer]":
        """The answer to a job: the one that is kept, or what `begin` finds, which is kept then."""
        if not self._most or job.picture is not None:
            return begin(job)
        started = time.perf_counter()
        # Before the search: what it finds is no older than that, so that a change meanwhile leads to another search.
        state = self._state()
        if state is None:
            return begin(job)
        name = (state, tuple(map(_written, job.terms)), job.options, job.window)
        known = self._recent.get(name)
        if known is None:
            future = begin(job)
            future.add_done_callback(partial(self._keep, name))
            return future
        seconds = {"total": round(time.perf_counter() - started, 6)}
        found: Future[SearchAnswer] = Future()
        found.set_result(known.model_copy(update={"timings": seconds}))
        return found

    def _keep(self, name: object, future: "Future[SearchAnswer]") -> None:
        if not future.cancelled() and future.exception() is None:
            answer = future.result()
            self._recent.put(name, answer, RESULT_BYTES * (1 + len(answer.results)))


def _written(term: TextTerm | PictureTerm) -> tuple[str, str, float]:
    if isinstance(term, TextTerm):
        return "text", term.text, term.weight
    return "id", term.id, term.weight
