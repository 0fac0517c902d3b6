"""Where it is computed: a user's word for a device, and a GPU where there is one and nobody says."""

import os
from typing import TYPE_CHECKING

from diptych.common.errors import DiptychError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def pick_device(name: "torch.device | str | None" = None) -> "torch.device":
    """The device that is asked for, seen to be there; for None and `auto` a GPU where there is one, else the CPU."""
    import torch

    if name is None or name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "cuda":  # asked without touching it: each process of several shall hold its own GPU alone
            there = (device.index or 0) < torch.cuda.device_count()
        else:
            there = torch.zeros(1, device=device).item() == 0
    except Exception:  # torch knows many names, and refuses each in its own way
        there = False
    if not there:
        raise DiptychError(f"{str(name)!r} cannot be used on this machine; expected {_choices()}", where="device")
    return device


def sent(tensor: "Tensor", device: "torch.device") -> "Tensor":
    """A tensor on a device; what comes from main memory a GPU takes in its turn, and is not waited for."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def device_of_process() -> str:
    """The GPU of this process among those that torchrun started on the machine; the CPU where there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


def processes_of(variable: str, default: int) -> int:
    """A number of processes as torchrun tells it in the environment."""
    told = os.environ.get(variable, str(default))
    if not told.isdecimal() or int(told) < 1:
        raise DiptychError(f"expected a number of processes, 1 or more, got {told!r}", where=variable)
    return int(told)


def _choices() -> str:
    import torch

    count = torch.cuda.device_count()
    if not count:
        return "'auto' or 'cpu', for torch sees no GPU here"
    return "'auto', 'cpu', 'cuda'" + (f" or 'cuda:0' to 'cuda:{count - 1}'" if count > 1 else " or 'cuda:0'")
