from diptych.common.progress import span
from diptych.training.time_left import TimeLeft


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_known_before_the_second_step() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds(10, 2) is None
    clock.now += 60  # the first waits for everything
    left.mark("step")
    assert left.seconds(10, 2) is None
    clock.now += 2
    left.mark("step")
    assert left.seconds(10, 2) == 20


def test_steps_and_evaluations_each_count_with_their_mean() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    for work, seconds in [("step", 50), ("step", 2), ("step", 4), ("evaluation", 30), ("step", 3), ("evaluation", 10)]:
        clock.now += seconds
        left.mark(work)  # type: ignore[arg-type]
    assert left.seconds(100, 0) == 300
    assert left.seconds(0, 3) == 60
    assert left.seconds(100, 3) == 360


def test_a_stretch_of_time_for_people() -> None:
    assert [span(s) for s in (0, 89, 90, 600, 3599, 3600, 90061)] == [
        "0 s", "89 s", "2 min", "10 min", "1 h 0 min", "1 h 0 min", "25 h 1 min",
    ]  # fmt: skip
