"""When kernels are used: on no CPU, and on a GPU only where a small one ran."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch

from diptych.common import fused, kernel_probe
from diptych.common.fused import fused_dtype_on, half_product, has_kernels, inner_products

GPU = torch.device("cuda")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A GPU that is none, of this generation, with this Triton, on which a kernel does this."""

    def pretending(
        generation: int = 9,
        triton: tuple[int, int] = (3, 6),
        runs: Callable[[torch.device], bool] = lambda device: True,
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (generation, 0))
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(fused, "_triton", lambda: triton)
        monkeypatch.setattr(kernel_probe, "kernels_run", runs)

    has_kernels.cache_clear()
    yield pretending
    has_kernels.cache_clear()


def test_there_are_none_for_a_cpu() -> None:
    assert not has_kernels(torch.device("cpu"))
    assert fused_dtype_on(torch.device("cpu")) is None


def test_they_are_for_hopper_with_a_triton_that_runs(
    pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend()
    assert has_kernels(GPU)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("other", [{"generation": 8}, {"generation": 10}, {"triton": (3, 3)}, {"triton": (0, 0)}])
def test_other_machines_are_left_to_pytorch(
    other: dict[str, object], pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(**other)
    assert not has_kernels(GPU)
    assert capsys.readouterr().err == ""


def test_where_none_can_be_built_that_is_said_once(
    pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(device: torch.device) -> bool:
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    pretend(runs=fails)
    assert not has_kernels(GPU)
    assert not has_kernels(GPU)
    assert capsys.readouterr().err == ("GPU kernels are left out, and scoring is slower: Failed to find C compiler.\n")


def test_where_one_writes_something_else_none_is_used(
    pretend: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pretend(runs=lambda device: False)
    assert not has_kernels(GPU)
    assert "other numbers" in capsys.readouterr().err


def test_the_probe_runs_in_the_interpreter() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert kernel_probe.kernels_run(torch.device(device))


@pytest.mark.parametrize("autocast", [False, True])
def test_scores_of_vectors_are_not_rounded(autocast: bool) -> None:
    x, y = torch.randn(3, 5).requires_grad_(), torch.randn(2, 5)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = inner_products(x, y)
    assert found.dtype == torch.float32
    assert torch.equal(found, x @ y.T)
    assert found.requires_grad
    assert inner_products(x.double(), y.double()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_product_of_half_precision_is_in_float32(dtype: torch.dtype) -> None:
    x, y = torch.randn(3, 5).to(dtype), torch.randn(2, 5).to(dtype)
    found = half_product(x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x.float() @ y.float().T)
