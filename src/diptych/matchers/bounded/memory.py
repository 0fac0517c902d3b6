"""How much memory scoring may take, and what happens when it runs out."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.kept import Kept

# Working memory that a block is planned with at most: on a CPU what stays near its caches, where larger ones gain
# nothing; on a GPU what keeps every core busy (benchmarks/scoring.py --work tries others).
# MMCA's kernels count on no more than 4 GiB: they number what a call holds in 32 bits.
ENOUGH = {"cpu": 16 << 20, "cuda": 4 << 30}
# So little is taken without asking what is free: that would take longer than to score it, and a call for which there
# is not enough is halved all the same.
LITTLE = 64 << 20
# Scores of one block, which may also lie in main memory while they are ranked.
MOST_PAIRS = 1 << 24
# Of a device that cannot say what is free.
UNKNOWN = 1 << 30
UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


class MemoryBudget:
    """Bytes that scoring may take on a device: `work` for one call of the matcher, `side` for each side's vectors.

    Half of the memory is for the call's own tensors, a quarter for vectors moved to the device, and the last quarter
    is never planned for: allocators round up and leave gaps.
    """

    def __init__(self, device: torch.device, memory: int | None = None) -> None:
        if memory is not None and memory <= 0:
            raise DiptychError(f"memory: expected a number of bytes above 0, got {memory}")
        self.device = device
        self._given, self._work = memory, None if memory is None else min(memory // 2, self._enough)

    @cached_property
    def memory(self) -> int:
        """Bytes in all: as given, or what is free when it is first asked for."""
        return free_memory(self.device) if self._given is None else self._given

    @property
    def work(self) -> int:
        """Bytes for one call of the matcher."""
        if self._work is None:
            self._work = min(self.memory // 2, self._enough)
        return self._work

    @property
    def side(self) -> int:
        """Bytes for the vectors of each side."""
        return self.memory // 8

    def allows(self, taken: int) -> bool:
        """Whether one call of the matcher may take so many bytes."""
        return (self._work is None and taken <= min(LITTLE, self._enough)) or taken <= self.work

    @property
    def _enough(self) -> int:
        return ENOUGH.get(self.device.type, UNKNOWN)

    def pairs(self, floats: int) -> int:
        """How many pairs of so many float32 numbers one call may take; at least 1."""
        return max(1, min(MOST_PAIRS, self.work // (4 * floats)))

    def takes(self, pairs: int, floats: int) -> bool:
        """Whether one call may take so many pairs of so many float32 numbers."""
        return pairs <= MOST_PAIRS and self.allows(4 * pairs * floats)

    def items(self, kept: Kept) -> int:
        """How many items of one side may be on the device at once; at least 1."""
        return max(1, self.side // max(1, item_bytes(kept)))

    def holds(self, kept: Kept) -> bool:
        """Whether all of one side may be on the device for the whole run."""
        return item_bytes(kept) * len(kept) <= self.side

    def holds_matrix(self, rows: int, columns: int) -> bool:
        """Whether so many float32 scores may stay on the device; they are taken from what is not planned for."""
        taken = 4 * rows * columns
        return (self._given is None and taken <= LITTLE) or taken <= self.memory // 16

    def ran_out(self, taken: int) -> None:
        """Memory ran out in a call that was planned to take so many bytes: plan for half of it from now on."""
        self._work = max(1, min(self.work, taken) // 2)
        release(self.device)


def item_bytes(kept: Kept) -> int:
    """Bytes of one item as float32, padding included."""
    items = max(1, len(kept))
    return sum(t.numel() // items * (4 if t.is_floating_point() else t.element_size()) for t in kept.tensors().values())


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device: on a GPU what the driver and PyTorch's cache have left."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_stats_as_nested_dict(device)  # one look for both; each alone takes a look of its own
        return free + held["reserved_bytes"]["all"]["current"] - held["allocated_bytes"]["all"]["current"]
    if device.type == "cpu":
        return available_ram()
    return UNKNOWN


def available_ram(
    meminfo: Path = Path("/proc/meminfo"),
    limit: Path = Path("/sys/fs/cgroup/memory.max"),
    used: Path = Path("/sys/fs/cgroup/memory.current"),
) -> int:
    """Bytes of main memory that can be taken without swapping, within a container's limit where there is one."""
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match:
        available = int(match[1]) * 1024
    else:
        # Systems other than Linux say only how much there is in all.
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with suppress(OSError, ValueError):  # no container, or one whose limit is "max"
        available = min(available, int(limit.read_text()) - int(used.read_text()))
    return max(1, available)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; PyTorch has no type of its own for the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text
        for words in ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
    )


def release(device: torch.device) -> None:
    """Give memory that PyTorch holds unused back to the device, so that gaps can close."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def part_of(kept: Kept, which: Tensor | slice, longest: int) -> Kept:
    """Some items, of which the longest has so many vectors: without the padding that none of them needs."""
    if isinstance(which, Tensor):
        which = which.to(kept.device, non_blocking=True)
    return kept[which].cut(longest)


def move(kept: Kept, parts: Sequence[Tensor | slice], extents: Tensor, device: torch.device) -> list[Kept] | None:
    """Parts of one side, whose items have `extents` (n,), on a device; none where they do not fit."""
    try:
        return [part_of(kept, which, int(extents[which].max())).to(device) for which in parts]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    release(device)
    return None


def read_bytes(text: str) -> int:
    """A size for people as bytes: `24GiB`, `500MB`, `1073741824`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if match is None or match[2] not in UNITS:
        raise DiptychError(f"memory: expected a size like 24GiB or 500MB, got {text!r}")
    return int(float(match[1]) * UNITS[match[2]])
