import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest

from diptych.web.errors import Busy
from diptych.web.service.batching import Batcher
from diptych.web.service.figures import LaneFigures
from diptych.web.service.pools import Pool


class Doubling:
    """Doubles numbers; the first batch waits for `go`, so that others gather behind it."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(jobs))
        self.began.set()
        assert self.go.wait(10)
        return [ValueError("three") if job == 3 else 2 * job for job in jobs]


def test_what_waits_goes_together() -> None:
    work, sizes = Doubling(), list[int]()
    batcher = Batcher("tests", work, most=4, wait=0, figures=LaneFigures(batch=sizes.append))
    first = batcher.submit(0)
    assert work.began.wait(10)
    futures = [batcher.submit(job) for job in range(1, 7)]
    assert batcher.size == 6
    work.go.set()
    assert first.result(10) == 0
    assert [f.exception(10) or f.result() for i, f in enumerate(futures, 1) if i != 3] == [2, 4, 8, 10, 12]
    assert str(futures[2].exception()) == "three"
    assert work.batches == [[0], [1, 2, 3, 4], [5, 6]]
    assert sizes == [1, 4, 2]
    batcher.close()


def test_one_by_one() -> None:
    work = Doubling()
    work.go.set()
    batcher = Batcher("tests", work, most=1)
    assert [future.result(10) for future in [batcher.submit(job) for job in (1, 2, 4)]] == [2, 4, 8]
    assert work.batches == [[1], [2], [4]]
    batcher.close()


def test_others_are_waited_for_a_moment() -> None:
    work = Doubling()
    work.go.set()
    batcher = Batcher("tests", work, most=2, wait=60)
    futures = [batcher.submit(job) for job in (1, 2)]  # the second makes the batch full long before the minute is over
    assert [future.result(10) for future in futures] == [2, 4]
    assert work.batches == [[1, 2]]
    batcher.close()


def test_too_many_are_refused() -> None:
    work = Doubling()
    told: list[int] = []
    figures = LaneFigures(waiting=told.append, refused=lambda: told.append(-1))
    batcher = Batcher("tests", work, most=1, wait=0, queue=2, figures=figures)
    batcher.submit(0)
    assert work.began.wait(10)
    waiting = [batcher.submit(1), batcher.submit(2)]
    with pytest.raises(Busy, match="tests"):
        batcher.submit(4)
    assert told == [1, 0, 1, 2, -1]
    work.go.set()
    assert [future.result(10) for future in waiting] == [2, 4]
    batcher.close()


def test_what_nobody_waits_for_is_not_done() -> None:
    work = Doubling()
    batcher = Batcher("tests", work, most=8, wait=0)
    batcher.submit(0)
    assert work.began.wait(10)
    given_up, last = batcher.submit(1), batcher.submit(2)
    assert given_up.cancel()
    work.go.set()
    assert last.result(10) == 4
    assert work.batches == [[0], [2]]
    batcher.close()


def test_closing_drops_what_waits_and_can_be_undone() -> None:
    work = Doubling()
    batcher = Batcher("tests", work, most=1, wait=0)
    first = batcher.submit(0)
    assert work.began.wait(10)
    waiting = batcher.submit(1)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    with pytest.raises(CancelledError):
        waiting.result(10)
    work.go.set()
    closing.join(10)
    assert first.result(0) == 0
    assert batcher.submit(5).result(10) == 10
    batcher.close()


def test_a_fault_of_the_whole_batch_reaches_everybody_and_the_thread_goes_on() -> None:
    def work(jobs: Sequence[int]) -> list[int | Exception]:
        if 0 in jobs:
            raise RuntimeError("zero")
        return list(jobs)

    batcher = Batcher("tests", work, wait=0)
    assert str(batcher.submit(0).exception(10)) == "zero"
    assert batcher.submit(1).result(10) == 1
    batcher.close()


def test_a_pool_has_a_short_queue() -> None:
    go, began = threading.Event(), threading.Event()

    def work() -> int:
        began.set()
        assert go.wait(10)
        return 1

    told: list[int] = []
    figures = LaneFigures(waiting=told.append, refused=lambda: told.append(-1))
    pool = Pool("tests", workers=1, waiting=1, figures=figures)
    futures = [pool.submit(work), pool.submit(work)]
    assert began.wait(10)
    with pytest.raises(Busy, match="tests"):
        pool.submit(work)
    assert (pool.size, told) == (2, [1, 2, -1])
    futures[1].cancel()
    again = pool.submit(work)
    go.set()
    assert [futures[0].result(10), again.result(10)] == [1, 1]
    pool.close()
    assert pool.submit(work).result(10) == 1
    pool.close()
    assert pool.size == 0
