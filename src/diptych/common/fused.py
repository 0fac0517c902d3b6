"""Whether fused GPU kernels can take the place of plain PyTorch here; and a product of half precision in full."""

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
SUMS_IN_FLOAT32 = torch.torch_version.TorchVersion(torch.__version__) >= "2.8"
INTERPRETED = 227 << 10  # bytes that kernels may take where they are interpreted: those of a large GPU


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether our Triton kernels run on a device: an NVIDIA GPU of Hopper's generation, whose memory they are laid
    out for, with a Triton that knows its copy engine.
    """
    if device.type != "cuda" or torch.version.hip is not None or _triton() < (3, 4):
        return False
    return torch.cuda.get_device_capability(device)[0] == 9 and _tried(device)


def _tried(device: torch.device) -> bool:
    """Whether a small one runs; where it does not, that is said once, and plain PyTorch computes everything."""
    from diptych.common.kernel_probe import kernels_run

    try:
        with torch.cuda.device(device):
            if kernels_run(device):
                return True
            reason = "a small one came back with other numbers than it should"
    except Exception as error:  # whatever is missing: a C compiler, its headers, a folder to write to
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    print(f"GPU kernels are left out, and scoring is slower: {reason}", file=sys.stderr)
    return False


def _triton() -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version("triton").split(".")[:2])
    except PackageNotFoundError:
        return (0, 0)


@cache
def own_memory(device: torch.device) -> int:
    """Bytes that a program of a kernel may take of its multiprocessor's own memory: 99 KiB to 227 KiB."""
    if device.type != "cuda":
        return INTERPRETED
    room: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    return room


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


def inner_products(x: Tensor, y: Tensor) -> Tensor:
    """x yᵀ of (a, d) and (b, d) where they are scores or next to it: (a, b), never rounded to half precision.

    Autocast would round them: between 0.5 and 1 a score would then be one of 128, and the best ones would tie.
    """
    if not torch.is_autocast_enabled(x.device.type):
        return x @ y.T
    half = fused_dtype(x)
    with torch.autocast(x.device.type, enabled=False):
        if half is not None:
            return half_product(x.to(half), y.to(half))
        kind = torch.promote_types(x.dtype, torch.float32)
        return x.to(kind) @ y.to(kind).T


def half_product(x: Tensor, y: Tensor) -> Tensor:
    """x yᵀ of (a, d) and (b, d), in float32 whatever type is multiplied: (a, b)."""
    if x.dtype == torch.float32 or not x.is_cuda or not SUMS_IN_FLOAT32:
        with torch.autocast(x.device.type, enabled=False):
            return x.float() @ y.float().T
    return torch.mm(x, y.T, out_dtype=torch.float32)
