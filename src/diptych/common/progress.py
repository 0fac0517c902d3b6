"""One look for every long job: what, how far, how fast, how long still."""

import sys
from collections.abc import Iterable, Iterator, Sized
from importlib.util import find_spec
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

T = TypeVar("T")


class RateColumn(ProgressColumn):
    """Items per second since the start."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """The rate of one task, blank until it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f} {self.unit}/s")


def span(seconds: float) -> str:
    """A stretch of time for people.

    >>> span(42.3), span(200), span(7500)
    ('42 s', '3 min', '2 h 5 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def is_shown(console: Console) -> bool:
    """Whether somebody sees a bar: at a terminal, or in a notebook that can draw one."""
    return sys.stderr.isatty() or (console.is_jupyter and find_spec("ipywidgets") is not None)


def progress_bar(unit: str = "items") -> Progress:
    """A progress bar on standard error, so that standard output stays clean for results; silent where nobody sees."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not is_shown(console),
        transient=True,
    )


def track(items: Iterable[T], description: str, total: int | None = None, unit: str = "items") -> Iterator[T]:
    """Iterate over `items` under a progress bar."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar(unit) as bar:
        task = bar.add_task(description, total=total, note="")
        for item in items:
            yield item
            bar.advance(task)
