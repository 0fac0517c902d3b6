"""What all kernels share: sizes of tiles, how they multiply, and tensors that are read in blocks."""

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


def power_of_two(n: int) -> int:
    """The least power of two that is not below n: what the sides of a kernel's tiles must be."""
    return 1 << max(0, n - 1).bit_length()


def precision_of(dtype: torch.dtype) -> str:
    """How a kernel multiplies numbers of a type: float32 in full."""
    return "ieee" if dtype == torch.float32 else "tf32"


def described(x: Tensor, *block: int) -> TensorDescriptor:
    """A tensor whose blocks a kernel loads and stores as a whole, by Hopper's copy engine; outside of it lies 0."""
    return TensorDescriptor.from_tensor(x, list(block))
