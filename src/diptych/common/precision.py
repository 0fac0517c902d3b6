"""What large products are computed in, by the names that recipes and commands have for it."""

import torch

from diptych.common.errors import DiptychError

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def half_of(precision: str) -> torch.dtype | None:
    """The type of a name; None for float32.

    >>> half_of("bf16"), half_of("float32")
    (torch.bfloat16, None)
    """
    if precision != "float32" and precision not in HALVES:
        raise DiptychError(f"precision: expected float32, bf16 or fp16, got {precision!r}")
    return HALVES.get(precision)


def scored_in(precision: str) -> torch.dtype | None:
    """What a run of that precision is scored in by GPU kernels: float16 for either half, None for float32.

    It rounds eight times more finely than bfloat16. The range that gradients need bfloat16 for is not needed here:
    vectors, states and weights are far from float16's largest number, 65,504.

    >>> scored_in("bf16"), scored_in("float32")
    (torch.float16, None)
    """
    return None if half_of(precision) is None else torch.float16
