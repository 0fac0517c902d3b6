"""What an encoder gives a matcher."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """Local vectors of a batch, with what some matchers need besides.

    vectors: (n, k, d), local vectors in the joint dimension
    mask: (n, k), True where a vector is real
    whole: (n, d), one vector for the whole item where the encoder has one: the last GRU state, the projected [CLS]
    inputs: (n, k, w), the local vectors before they were put in context: word embeddings, raw region features
    """

    vectors: Tensor
    mask: Tensor
    whole: Tensor | None
    inputs: Tensor


def l2(x: Tensor) -> Tensor:
    """x / (‖x‖ + 1e-8) along the last dimension: never a division by zero, and no jump near it."""
    return x / (x.norm(dim=-1, keepdim=True) + 1e-8)
