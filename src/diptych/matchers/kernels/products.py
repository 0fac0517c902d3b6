"""What all kernels share: products of half precision with float32 results, and sizes of blocks."""

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

SUMS_IN_FLOAT32 = torch.torch_version.TorchVersion(torch.__version__) >= "2.8"


def half_product(x: Tensor, y: Tensor) -> Tensor:
    """x yᵀ of (a, d) and (b, d), in float32 whatever type is multiplied: (a, b)."""
    if x.dtype == torch.float32 or not x.is_cuda or not SUMS_IN_FLOAT32:
        with torch.autocast(x.device.type, enabled=False):
            return x.float() @ y.float().T
    return torch.mm(x, y.T, out_dtype=torch.float32)


def power_of_two(n: int) -> int:
    """The least power of two that is not below n: what the sides of a kernel's tiles must be."""
    return 1 << max(0, n - 1).bit_length()


def precision_of(dtype: torch.dtype) -> str:
    """How a kernel multiplies numbers of a type: float32 in full."""
    return "ieee" if dtype == torch.float32 else "tf32"


def described(x: Tensor, *block: int) -> TensorDescriptor:
    """A tensor whose blocks a kernel loads and stores as a whole, by Hopper's copy engine; outside of it lies 0."""
    return TensorDescriptor.from_tensor(x, list(block))
