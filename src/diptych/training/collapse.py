"""A run that has collapsed: every picture and sentence has become the same, and the loss says no more."""

from torch import Tensor

NEAR = 0.01  # how close to the collapsed loss an epoch's steps are on average, as a share of it


class CollapseWatch:
    """Looks at an epoch's losses, and notices when they all sit at what a collapsed matcher's are.

    All scores are then equal: with the hardest negatives the hinge is the margin, twice, and binary cross-entropy
    4 log 2. The gradients of positive and negative cancel out, and the loss stays there for as long as the run goes on.
    """

    def __init__(self) -> None:
        self._off: list[Tensor] = []  # each step's distance, on the device

    def step(self, loss: Tensor, collapsed: float | None) -> None:
        """Take in a step's loss, and what it would be if the matcher had collapsed; None where that is no trap."""
        if collapsed is not None:
            self._off.append((loss.detach() - collapsed).abs() / collapsed)

    def epoch(self) -> bool:
        """Whether the epoch that ends now was a collapsed one; the next begins."""
        off, self._off = self._off, []
        return bool(off) and float(sum(off)) / len(off) < NEAR


def collapse_sentence(epoch: int, loss: float) -> str:
    """What is told of an epoch, from 1, that was collapsed."""
    return (
        f"epoch {epoch}: the loss stays at {loss:g}, as it is where all scores are the same, and the hardest negatives"
        " teach nothing more; begin anew with loss.all_negatives_epochs=1 or more, with a lower learning"
        " rate or warmup, or with another loss"
    )
