"""What a term is: a number of what was kept of both sides of a batch, whatever the matcher."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from diptych.matchers.kept import Kept


@dataclass(frozen=True)
class LossTerm:
    """A term beside the loss.

    value: of the kept pictures and the kept sentences of a batch, one number with gradient
    needs: fields that both kept things must have beside vectors and mask
    """

    value: Callable[[Kept, Kept], Tensor]
    needs: tuple[str, ...] = ()
