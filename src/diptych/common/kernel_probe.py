# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""A kernel that does next to nothing: whether Triton can build and run any here. It wants a C compiler for that."""

import torch
import triton
import triton.language as tl

SIZE = 16


@triton.jit
def _count_kernel(x, N: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(x + place, place)


def kernels_run(device: torch.device) -> bool:
    """Whether one comes back with what it should have written."""
    x = torch.zeros(SIZE, dtype=torch.int32, device=device)
    _count_kernel[(1,)](x, N=SIZE, num_warps=1)
    return x.tolist() == list(range(SIZE))
