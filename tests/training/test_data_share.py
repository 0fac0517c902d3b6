"""The share of a run's time that goes by in waiting for batches."""

from collections.abc import Iterator

import pytest

from diptych.training.data_share import DataShare


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_waiting_counts_against_all_time_since_it_began() -> None:
    clock = Clock()

    def batches() -> Iterator[str]:
        for name in "ab":
            clock.now += 3
            yield name

    share = DataShare(clock)
    clock.now += 50
    share.begin()
    assert share.share() == 0
    found = batches()
    assert share.take(found) == "a"
    clock.now += 9
    assert share.share() == pytest.approx(3 / 12)
    assert share.take(found) == "b"
    assert share.share() == pytest.approx(6 / 15)
    share.begin()
    clock.now += 1
    assert share.share() == 0
