"""What a lane of work tells of itself while it works."""

from collections.abc import Callable
from dataclasses import dataclass


def _nobody(*_: int) -> None:
    return None


@dataclass(frozen=True)
class LaneFigures:
    """Who is told what of one lane; nobody by default.

    batch: how many pieces were worked at together; waiting: how much waits now; refused: one was told to come back
    """

    batch: Callable[[int], None] = _nobody
    waiting: Callable[[int], None] = _nobody
    refused: Callable[[], None] = _nobody
