"""Threads read ahead of a model: in order, only so far, and errors come through."""

import threading
from collections.abc import Iterator

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.common.read_ahead import MOST_WORKERS, check_sizes, in_order, read_ahead


def fail_at_four(x: int) -> int:
    if x == 4:
        raise DiptychError("four")
    return x


def test_results_come_in_order_and_errors_come_through() -> None:
    assert list(in_order(lambda x: x * x, range(20), 3, 6)) == [x * x for x in range(20)]
    with pytest.raises(DiptychError, match="four"):
        list(in_order(fail_at_four, range(20), 3, 6))


@pytest.mark.parametrize("ahead", [1, 4])
def test_no_more_is_taken_than_may_wait(ahead: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for x in range(20):
            taken.append(x)
            yield x

    results = in_order(lambda x: x, items(), 2, ahead)
    for asked in range(10):
        assert next(results) == asked
        assert len(taken) == asked + ahead + 1
    results.close()
    assert len(taken) == 10 + ahead


@pytest.mark.parametrize("on_cpu", [True, False])
def test_prepared_and_finished_in_order(on_cpu: bool) -> None:
    here, finishing = threading.get_ident(), set()
    threads = torch.get_num_threads()

    def finish(x: int) -> int:
        finishing.add(threading.get_ident())
        return -x

    results = read_ahead(range(12), lambda x: x * x, finish, on_cpu=on_cpu, workers=3, ahead=4)
    assert list(results) == [-x * x for x in range(12)]
    assert (here in finishing) != on_cpu  # a device gets its batches from one thread
    assert on_cpu or finishing == {here}
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("fails", ["prepare", "finish"])
def test_after_an_error_nothing_is_left_running(on_cpu: bool, fails: str) -> None:
    before, threads = threading.active_count(), torch.get_num_threads()
    steps = {"prepare": lambda x: x, "finish": lambda x: x, fails: fail_at_four}
    with pytest.raises(DiptychError, match="four"):
        list(read_ahead(range(20), steps["prepare"], steps["finish"], on_cpu=on_cpu, workers=2, ahead=3))
    assert threading.active_count() == before
    assert torch.get_num_threads() == threads


def test_sizes() -> None:
    assert check_sizes(1, 3) == 3
    assert 1 <= check_sizes(4, None) <= MOST_WORKERS
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(DiptychError, match="batch size and workers: expected at least 1"):
            check_sizes(*wrong)
