"""What can be seen of a matcher at work: an array, and what it runs over."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Axis = Literal["words", "regions", "slots", "iterations"]


@dataclass(frozen=True)
class View:
    """One array that a matcher shows.

    values: (n, m, *axes), of n pictures with m sentences; 0 at pads
    axes: what each dimension behind the pair runs over; `words` are the sentence's tokens
    pieces: how the tokens of a word become one value: their `mean`, or their `sum` where values are shares
    """

    values: Tensor
    axes: tuple[Axis, ...]
    pieces: Literal["mean", "sum"] = "mean"


def of_pictures(values: Tensor, sentences: int) -> Tensor:
    """What is the same with every sentence: (n, *axes) -> (n, m, *axes), not copied."""
    return values.unsqueeze(1).expand(-1, sentences, *values.shape[1:])


def of_sentences(values: Tensor, pictures: int) -> Tensor:
    """What is the same with every picture: (m, *axes) -> (n, m, *axes), not copied."""
    return values.unsqueeze(0).expand(pictures, *values.shape)
