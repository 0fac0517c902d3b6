"""Packed sequences beside PyTorch's own way: the same states and the same gradients."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from diptych.encoders.packed import packing, run_packed

LENGTHS = {
    "ragged": [3, 1, 5, 5, 2],
    "falling": [5, 4, 3, 2, 1],
    "all alike": [4, 4, 4],
    "one": [3],
    "one of one": [1],
    "rising": [1, 2, 6],
}


def theirs(rnn: nn.GRU, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    out, last = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0], last


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("more", [0, 2], ids=["", "padded further"])
@pytest.mark.parametrize("name", LENGTHS)
def test_states_and_gradients_are_those_of_torch(name: str, more: int, bidirectional: bool, layers: int) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor(LENGTHS[name])
    k = int(lengths.max()) + more
    rnn = nn.GRU(3, 4, layers, batch_first=True, bidirectional=bidirectional)
    x = torch.randn(len(lengths), k, 3, requires_grad=True)
    packed = packing(lengths, k, x.device)
    ours, expected = run_packed(rnn, x, packed), theirs(rnn, x, lengths)
    inputs = [x, *rnn.parameters()]
    slopes = [torch.randn_like(one) for one in expected]
    gradients = [torch.autograd.grad(one, inputs, slopes) for one in (ours, expected)]
    for found, wanted in zip((*ours, *gradients[0]), (*expected, *gradients[1]), strict=True):
        torch.testing.assert_close(found, wanted)


def test_what_lies_at_pads_is_never_seen() -> None:
    rnn, lengths = nn.GRU(3, 4, batch_first=True), torch.tensor([2, 3])
    x = torch.randn(2, 4, 3)
    packed = packing(lengths, 4, x.device)
    before, _ = run_packed(rnn, x, packed)
    x[0, 2:], x[1, 3:] = torch.nan, torch.inf
    after, _ = run_packed(rnn, x, packed)
    assert torch.equal(before, after)
    assert not after[0, 2:].any()
