from collections.abc import Callable

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.common.precision import half_of, scored_in


@pytest.mark.parametrize(
    ("name", "half", "scored"),
    [
        ("float32", None, None),
        ("bf16", torch.bfloat16, torch.float16),
        ("fp16", torch.float16, torch.float16),
    ],
)
def test_a_run_is_scored_in_the_finer_half(name: str, half: torch.dtype | None, scored: torch.dtype | None) -> None:
    assert half_of(name) is half
    assert scored_in(name) is scored


@pytest.mark.parametrize("read", [half_of, scored_in])
def test_another_name_is_refused(read: Callable[[str], object]) -> None:
    with pytest.raises(DiptychError, match="precision: expected float32, bf16 or fp16, got 'half'"):
        read("half")
