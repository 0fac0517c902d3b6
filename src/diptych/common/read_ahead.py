"""Reading ahead of a model, so that neither waits for the other: threads, in order, in bounded memory."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from diptych.common.errors import DiptychError

MOST_WORKERS = 16
T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")


def check_sizes(batch_size: int, workers: int | None) -> int:
    """How many threads work, by default one a core; an error where there would be no batch or nobody to work."""
    workers = min(os.cpu_count() or 1, MOST_WORKERS) if workers is None else workers
    if batch_size < 1 or workers < 1:
        raise DiptychError("batch size and workers: expected at least 1")
    return workers


def read_ahead(
    batches: Iterable[T],
    prepare: Callable[[T], P],
    finish: Callable[[P], R],
    *,
    on_cpu: bool,
    workers: int,
    ahead: int,
    cores: int | None = None,
) -> Generator[R, None, None]:
    """Batches prepared (read and decoded) by threads and finished by a model, in their order.

    On the CPU each thread takes a batch through both on its share of the cores. Elsewhere the threads prepare, and
    the caller's thread finishes one batch after another. Close it where it is not read to its end.

    ahead: most batches that are begun and not yet asked for, which bounds the memory
    cores: how many of the machine's cores are meant for this, by default all
    """
    import torch

    share = max(1, (cores or os.cpu_count() or 1) // workers)

    def whole(batch: T) -> R:
        torch.set_num_threads(share)  # a setting of each thread
        return finish(prepare(batch))

    threads = torch.get_num_threads()
    try:
        if on_cpu:
            yield from in_order(whole, batches, workers, ahead)
        else:
            with closing(in_order(prepare, batches, workers, ahead)) as prepared:
                for batch in prepared:
                    yield finish(batch)
    finally:
        torch.set_num_threads(threads)


def in_order(work: Callable[[T], R], items: Iterable[T], workers: int, ahead: int) -> Generator[R, None, None]:
    """Results of `work` in the order of the items, computed by threads at most `ahead` of what is asked for."""
    pool = ThreadPoolExecutor(workers)
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
