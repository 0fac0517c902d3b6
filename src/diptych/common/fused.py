"""Whether fused GPU kernels can take the place of plain PyTorch here."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device: an NVIDIA GPU of Ampere's generation or later."""
    if device.type != "cuda" or torch.version.hip is not None or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def fused_dtype(*tensors: Tensor) -> torch.dtype | None:
    """The half type that fused kernels multiply in, where they can be used; None where plain PyTorch computes.

    They serve where autocast asks for half precision on a GPU and no gradient is recorded: what a matcher keeps may
    have none where its own weights want one.
    """
    return fused_dtype_on(tensors[0].device)


def fused_dtype_on(device: torch.device) -> torch.dtype | None:
    """The same for tensors on a device that are not there yet."""
    if torch.is_grad_enabled() or not has_kernels(device) or not torch.is_autocast_enabled(device.type):
        return None
    dtype = torch.get_autocast_dtype(device.type)
    return dtype if dtype in HALF else None
