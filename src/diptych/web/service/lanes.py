"""The threads that work for requests, a few for each kind of work, and waiting for them."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import torch

from diptych.web.errors import Busy
from diptych.web.schemas import SearchAnswer
from diptych.web.service.batching import Batcher
from diptych.web.service.finding import Job
from diptych.web.service.pools import Pool
from diptych.web.settings import ServerSettings, cores_each

R = TypeVar("R")
Work = Callable[[Sequence[Job]], Sequence[SearchAnswer | Exception]]


class Lanes:
    """Threads for each kind of work, so that none can stop the others.

    Plain sentences have a thread of their own that answers them in batches; queries with pictures or several terms
    have another. Re-ranking, explaining, pictures and changes each have a pool with a short queue.

    sentences, mixed: what answers the two kinds of searches
    seen: for a batcher's name, what is told the sizes of its batches
    """

    def __init__(
        self, settings: ServerSettings, sentences: Work, mixed: Work, seen: Callable[[str], Callable[[int], None]]
    ) -> None:
        self.settings = settings
        self.sentences = self._batcher("search", sentences, seen)
        self.mixed = self._batcher("picture search", mixed, seen)
        self.pools = {
            "rerank": Pool("rerank", 1, 16, _few_threads),
            "explain": Pool("explain", 1, 64, _few_threads),
            "embed": Pool("embed", 1, 32, _few_threads),
            "pictures": Pool("pictures", 2, 256, _few_threads),
            "uploads": Pool("uploads", 2, 32, _few_threads),
            "changes": Pool("changes", 1, 16, _few_threads),
        }

    def _batcher(
        self, name: str, work: Work, seen: Callable[[str], Callable[[int], None]]
    ) -> Batcher[Job, SearchAnswer]:
        settings = self.settings
        return Batcher(
            name,
            work,
            most=settings.batch,
            wait=settings.batch_wait,
            queue=settings.queue,
            ready=_few_threads,
            seen=seen(name),
        )

    def search(self, job: Job) -> Future[SearchAnswer]:
        """Have a search done together with others of its kind."""
        return (self.sentences if job.plain else self.mixed).submit(job)

    def begin(self, pool: str, work: Callable[..., R], *arguments: Any) -> Future[R]:
        """Have something done in a pool; an error where too much waits for it already."""
        return self.pools[pool].submit(lambda: work(*arguments))

    def wait(self, future: Future[R]) -> R:
        """What became of it, for callers that are threads themselves."""
        try:
            return future.result(self.settings.timeout)
        except TimeoutError:
            future.cancel()
            raise _late() from None
        except CancelledError:
            raise _closing() from None

    async def done(self, future: Future[R]) -> R:
        """What became of it, for callers that are no threads; what nobody waits for any more is not begun."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise _late() from None
        except asyncio.CancelledError:
            if future.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise _closing() from None
            raise

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Of each kind of work, how much waits and how much was refused."""
        return {lane.name: (lane.size, lane.refused) for lane in self._all()}

    def close(self) -> None:
        """Finish what is at work and drop what waits."""
        for lane in self._all():
            lane.close()

    def _all(self) -> list[Batcher[Job, SearchAnswer] | Pool]:
        return [self.sentences, self.mixed, *self.pools.values()]


def _late() -> Busy:
    return Busy("this took too long and was given up; try again in a moment", 5)


def _closing() -> Busy:
    return Busy("the server is stopping", 10)


def _few_threads() -> None:
    torch.set_num_threads(cores_each())  # a setting of each thread
