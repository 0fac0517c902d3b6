"""The threads that work for requests, a few for each kind of work, and waiting for them."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import torch

from diptych.web.errors import Busy
from diptych.web.schemas import SearchAnswer
from diptych.web.service.batching import Batcher
from diptych.web.service.figures import LaneFigures
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
    figures: for a lane's name, what it tells its figures to
    """

    def __init__(
        self, settings: ServerSettings, sentences: Work, mixed: Work, figures: Callable[[str], LaneFigures]
    ) -> None:
        self.settings = settings
        self._figures = figures
        self.sentences = self._batcher("search", sentences)
        self.mixed = self._batcher("picture search", mixed)
        self.pools = {
            "rerank": self._pool("rerank", 1, 16),
            "explain": self._pool("explain", 1, 64),
            "embed": self._pool("embed", 1, 32),
            "pictures": self._pool("pictures", 2, 256),
            "uploads": self._pool("uploads", 2, 32),
            "changes": self._pool("changes", 1, 16),
            "look": self._pool("look", 1, 4),
            "state": self._pool("state", 4, self.settings.queue),
        }

    def _batcher(self, name: str, work: Work) -> Batcher[Job, SearchAnswer]:
        settings = self.settings
        return Batcher(
            name,
            work,
            most=settings.batch,
            wait=settings.batch_wait,
            queue=settings.share(settings.queue),
            ready=self._few_threads,
            figures=self._figures(name),
        )

    def _pool(self, name: str, threads: int, waiting: int) -> Pool:
        return Pool(name, threads, self.settings.share(waiting), self._few_threads, self._figures(name))

    def _few_threads(self) -> None:
        torch.set_num_threads(cores_each(self.settings.workers))  # a setting of each thread

    @property
    def full(self) -> bool:
        """Whether no further sentence may wait."""
        return self.sentences.size >= self.sentences.queue

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
