from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.matchers.bounded.memory import (
    MemoryBudget,
    available_ram,
    free_memory,
    is_out_of_memory,
    item_bytes,
    read_bytes,
)
from diptych.matchers.kept import Kept

CPU = torch.device("cpu")
NOWHERE = Path("/nowhere")


def test_available_ram_is_the_kernels_figure_within_the_containers_limit(tmp_path: Path) -> None:
    meminfo, limit, used = tmp_path / "meminfo", tmp_path / "max", tmp_path / "current"
    meminfo.write_text("MemTotal:  900 kB\nMemAvailable:    500 kB\n")
    assert available_ram(meminfo, NOWHERE, NOWHERE) == 500 * 1024
    limit.write_text("max\n")
    used.write_text("1000\n")
    assert available_ram(meminfo, limit, used) == 500 * 1024
    limit.write_text("5000\n")
    assert available_ram(meminfo, limit, used) == 4000
    limit.write_text("500\n")
    assert available_ram(meminfo, limit, used) == 1


def test_without_the_kernels_figure_half_of_all_memory_is_taken() -> None:
    assert available_ram(NOWHERE, NOWHERE, NOWHERE) > 1 << 20


def test_free_memory_of_this_machine_is_known() -> None:
    assert free_memory(CPU) > 1 << 20


def test_a_budget_is_never_over_its_memory_and_always_allows_one_pair() -> None:
    budget = MemoryBudget(CPU, 8_000)
    assert budget.pairs(floats=10) == 100
    assert budget.pairs(floats=10_000) == 1
    kept = Kept(torch.zeros(50, 2, 30), torch.ones(50, 2, dtype=torch.bool))
    assert item_bytes(kept) == item_bytes(kept.to(dtype=torch.float16)) == 2 * 30 * 4 + 2
    assert budget.items(kept) == 4
    assert not budget.holds(kept)
    assert budget.holds(kept[:4])


def test_when_memory_runs_out_less_is_planned() -> None:
    budget = MemoryBudget(CPU, 8_000)
    budget.ran_out(taken=1_000)
    assert budget.work == 500
    budget.ran_out(taken=10_000)
    assert budget.work == 250


@pytest.mark.parametrize("memory", [0, -5])
def test_a_budget_of_nothing_is_an_error(memory: int) -> None:
    with pytest.raises(DiptychError, match="memory: expected a number of bytes above 0"):
        MemoryBudget(CPU, memory)


def test_want_of_memory_is_told_from_other_errors() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert not is_out_of_memory(ValueError("not enough memory"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("24GiB", 24 << 30), ("500MB", 500_000_000), ("1.5k", 1500), ("77", 77), ("2 GB", 2 * 10**9), ("1mib", 1 << 20)],
)
def test_sizes_for_people(text: str, size: int) -> None:
    assert read_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GB", "3 apples", "1iB"])
def test_a_wrong_size_is_named(text: str) -> None:
    with pytest.raises(DiptychError, match="memory: expected a size like 24GiB"):
        read_bytes(text)
