"""The kernel of GPO's recurrence beside PyTorch's GRU."""

import pytest
import torch
from torch import Tensor, nn

from diptych.common.fused import has_kernels
from diptych.encoders import gpo
from diptych.encoders.gpo import GPO, GPOConfig

pytestmark = pytest.mark.usefixtures("interpreted")
# By the interpreter, or by a GPU where there is one that kernels run on.
DEVICE = torch.device("cuda" if torch.cuda.is_available() and has_kernels(torch.device("cuda")) else "cpu")


@pytest.fixture(autouse=True)
def in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own recurrence rounds factors on a GPU."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(gpo, "has_kernels", lambda device: False)


def pool(hidden: int, position_dim: int = 6, **options: bool) -> GPO:
    torch.manual_seed(1)
    return GPO(GPOConfig(position_dim=position_dim, hidden=hidden, temperature=0.5, **options), dim=5).to(DEVICE)


def theta_and_gradients(module: GPO, largest: int, chosen: Tensor) -> tuple[Tensor, list[Tensor]]:
    theta = module.every_size(largest)
    gradients = torch.autograd.grad((theta * chosen).sum(), list(module.parameters()))
    return theta, list(gradients)


@pytest.mark.parametrize("largest", [1, 2, 7])
@pytest.mark.parametrize("hidden", [1, 5, 16])
@pytest.mark.parametrize("per_dimension", [False, True])
def test_weights_and_gradients_of_every_size(
    largest: int, hidden: int, per_dimension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pool(hidden, per_dimension=per_dimension)
    chosen = torch.randn(largest, largest, 5 if per_dimension else 1, device=DEVICE)
    expected, theirs = theta_and_gradients(module, largest, chosen)
    monkeypatch.setattr(gpo, "has_kernels", lambda device: True)
    found, ours = theta_and_gradients(module, largest, chosen)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, atol=2e-6, rtol=1e-4)


def test_states_are_those_of_a_loop_over_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size by itself, through a GRU that knows nothing of the others."""
    module = pool(hidden=3)
    gru = module.gru
    assert isinstance(gru, nn.GRU)
    monkeypatch.setattr(gpo, "has_kernels", lambda device: True)
    codes = module.codes(5)
    found = module._every_state(gru, codes)
    for size in range(1, 6):
        out = gru(codes[:size].unsqueeze(0))[0][0]
        torch.testing.assert_close(found[size - 1, :size], (out[:, :3] + out[:, 3:]) / 2, atol=1e-6, rtol=1e-5)


def test_large_recurrences_are_pytorch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pool(hidden=68)
    expected = module.every_size(3)
    monkeypatch.setattr(gpo, "has_kernels", lambda device: True)
    assert torch.equal(module.every_size(3), expected)
