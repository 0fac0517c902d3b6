"""The generalized pooling operator, GPO (Chen et al., CVPR 2021): every dimension sorted, then weighted by rank.

For a set of n vectors, v = sum_k theta_k max_k, where max_k holds the k-th largest value of each dimension. The
coefficients theta are learned, depend on n alone and sum to 1: mean, max and what lies between are special cases.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.common.fused import has_kernels
from diptych.encoders.packed import Packing, packing, run_packed

MOST_HIDDEN = 64  # of the kernel that keeps a recurrence's weights in registers


@dataclass(frozen=True)
class GPOConfig:
    """How the coefficients are generated; the defaults are the paper's.

    position_dim: length of a rank's sine and cosine code
    hidden: length of the sequence model's states
    temperature: what the logits are divided by before the softmax
    sequence: `bigru`, or `transformer`: one encoder layer of 4 heads over the same codes
    per_dimension: every dimension has coefficients of its own
    features: the generator sees the k-th largest values beside the code of k, so that theta depends on the set
    """

    position_dim: int = 32
    hidden: int = 32
    temperature: float = 0.1
    sequence: Literal["bigru", "transformer"] = "bigru"
    per_dimension: bool = False
    features: bool = False

    def __post_init__(self) -> None:
        if self.position_dim < 2 or self.position_dim % 2:
            raise ValueError(f"position_dim: {self.position_dim} is not valid; expected an even number from 2 on")
        if self.hidden < 1 or (self.sequence == "transformer" and self.hidden % 4):
            raise ValueError(f"hidden: {self.hidden} is not valid; expected at least 1, and 4 heads must divide it")
        check_bounds(self, "temperature", above=0)


def position_code(count: int, dim: int) -> Tensor:
    """Codes of the ranks 0 … count - 1: (count, dim), sine on even and cosine on odd dimensions.

    code[p, 2i] = sin(p / 10000^(2i / dim)), code[p, 2i + 1] = cos of the same.
    """
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, dim, 2) / dim)
    return torch.from_numpy(np.stack([np.sin(angles), np.cos(angles)], -1).reshape(count, dim).astype(np.float32))


@lru_cache(maxsize=64)
def _kept_code(count: int, dim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The same on a device, where it stays: copying it there makes a GPU wait."""
    with torch.inference_mode(False):
        return position_code(count, dim).to(device, dtype)


@lru_cache(maxsize=64)
def _every_packing(largest: int, device: torch.device) -> Packing:
    """Sequences of largest, …, 2, 1 elements, in the same way."""
    with torch.inference_mode(False):
        return packing(torch.arange(largest, 0, -1), largest, device)


def sort_set(vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Every dimension sorted on its own, largest first; pads come last, as zeros.

    (n, k, d), (n, k) -> values (n, k, d), and for each the position that it came from (n, k, d).
    """
    if vectors.is_cuda and vectors.requires_grad:
        # A GPU sorts what lies together in memory several times as fast.
        across = _lowest_pads(vectors, mask).transpose(1, 2).contiguous().sort(dim=2, descending=True)
        return _zero_pads(across.values.transpose(1, 2), mask), across.indices.transpose(1, 2)
    values, order = _lowest_pads(vectors, mask).sort(dim=1, descending=True)
    return _zero_pads(values, mask), order


def sorted_values(vectors: Tensor, mask: Tensor) -> Tensor:
    """The values of `sort_set` alone. Without a gradient on the CPU numpy sorts them, many times as fast as torch."""
    if vectors.requires_grad or vectors.device.type != "cpu" or vectors.dtype != torch.float32:
        return sort_set(vectors, mask)[0]
    falling = np.ascontiguousarray(-_lowest_pads(vectors, mask).numpy().transpose(0, 2, 1))
    falling.sort(-1)
    return _zero_pads(-torch.from_numpy(falling).transpose(1, 2), mask)


def _lowest_pads(vectors: Tensor, mask: Tensor) -> Tensor:
    return vectors.masked_fill(~mask.unsqueeze(-1), torch.finfo(vectors.dtype).min)


def _zero_pads(values: Tensor, mask: Tensor) -> Tensor:
    pads = torch.arange(mask.shape[1], device=mask.device) >= mask.sum(1, keepdim=True)
    return values.masked_fill(pads.unsqueeze(-1), 0)


class GPO(nn.Module):
    """A set of vectors to one, by learned coefficients of the ranks."""

    def __init__(self, config: GPOConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        inputs = config.position_dim + (dim if config.features else 0)
        self.gru: nn.GRU | None = None
        if config.sequence == "bigru":
            self.gru = nn.GRU(inputs, config.hidden, batch_first=True, bidirectional=True)
        else:
            self.project = nn.Linear(inputs, config.hidden)
            self.transformer = nn.TransformerEncoderLayer(
                config.hidden, nhead=4, dim_feedforward=4 * config.hidden, dropout=0.0, batch_first=True
            )
            # It would move the logits of all ranks alike, and a softmax does not see that.
            self.transformer.norm2.bias.requires_grad_(False)
        self.linear = nn.Linear(config.hidden, dim if config.per_dimension else 1, bias=False)

    def codes(self, count: int) -> Tensor:
        """What the sequence model is given for the ranks 0 … count - 1: (count, position_dim)."""
        weight = self.linear.weight
        return _kept_code(count, self.config.position_dim, weight.device, weight.dtype)

    def coefficients(self, lengths: Tensor, values: Tensor | None = None) -> Tensor:
        """theta of sets of the given sizes: (n,) -> (n, longest, 1), or (n, longest, d) with `per_dimension`.

        theta = softmax over ranks of Linear(sequence(codes)) / temperature; ranks from n on weigh 0.
        `values`, the sorted sets (n, longest, d), are wanted where the config says `features`, and only there.
        """
        sizes = lengths.cpu()
        longest = int(sizes.max())
        x = self.codes(longest).expand(len(sizes), -1, -1)
        if values is not None:
            x = torch.cat([x, values.to(x.dtype)], -1)
        pads = (torch.arange(longest) >= sizes.unsqueeze(1)).to(x.device)
        return self._generate(x, packing(sizes, longest, x.device), pads)

    def every_size(self, largest: int) -> Tensor:
        """theta of the sets of 1 … largest vectors, in rows: (largest, largest, 1 or d). No device is waited for."""
        x = self.codes(largest)
        ranks = torch.arange(largest, device=x.device)
        if self.gru is not None and self.config.hidden <= MOST_HIDDEN and has_kernels(x.device):
            return self._weights(self._every_state(self.gru, x), ranks.unsqueeze(0) > ranks.unsqueeze(1))
        pads = ranks.unsqueeze(0) >= largest - ranks.unsqueeze(1)
        return self._generate(x.expand(largest, -1, -1), _every_packing(largest, x.device), pads).flip(0)

    def _every_state(self, gru: nn.GRU, x: Tensor) -> Tensor:
        """Codes (largest, inputs) to the states of the sets of 1 … largest vectors: (largest, largest, hidden)."""
        from diptych.encoders.gpo_kernel import states_of_every_size

        ways = ("l0", "l0_reverse")
        with torch.autocast(x.device.type, enabled=False):
            inputs = [F.linear(x, getattr(gru, f"weight_ih_{way}"), getattr(gru, f"bias_ih_{way}")) for way in ways]
            weight, bias = (
                torch.stack([getattr(gru, f"{name}_hh_{way}") for way in ways]) for name in ("weight", "bias")
            )
            return states_of_every_size(torch.stack(inputs), weight, bias).mean(2)

    def _generate(self, x: Tensor, packed: Packing, pads: Tensor) -> Tensor:
        """Codes (n, longest, inputs) to theta."""
        # Without autocast: an error in a logit is multiplied by 1 / temperature before the softmax.
        with torch.autocast(self.linear.weight.device.type, enabled=False):
            if self.gru is not None:
                states, _ = run_packed(self.gru, x, packed)
                forward, backward = states.chunk(2, dim=-1)
                states = (forward + backward) / 2
            else:
                states = self.transformer(self.project(x), src_key_padding_mask=pads)
        return self._weights(states, pads)

    def _weights(self, states: Tensor, pads: Tensor) -> Tensor:
        """States (n, longest, hidden) to theta; none at pads (n, longest)."""
        with torch.autocast(states.device.type, enabled=False):
            logits = self.linear(states) / self.config.temperature
            theta: Tensor = logits.masked_fill(pads.unsqueeze(-1), -torch.inf).softmax(1)
        return theta

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """(n, k, d), (n, k) -> (n, d); the mask may have holes; a set without a vector gives 0."""
        values = sorted_values(vectors, mask)
        theta = self._theta(values, mask).to(values.dtype)
        values = values[:, : theta.shape[1]]
        if self.config.per_dimension:
            return (theta * values).sum(1)
        return (theta.transpose(1, 2) @ values).squeeze(1)

    def contributions(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """The share of the pooled vector that each input supplies: (n, k), summing to 1 over the real ones.

        An input that is the r-th largest in a dimension supplies theta_r of that dimension; the mean over dimensions.
        """
        values, order = sort_set(vectors, mask)
        theta = self._theta(values, mask)
        order = order[:, : theta.shape[1]]
        shares = torch.zeros(vectors.shape, dtype=theta.dtype, device=theta.device)
        return shares.scatter(1, order, theta.expand(order.shape)).mean(-1) * mask

    def _theta(self, values: Tensor, mask: Tensor) -> Tensor:
        """theta of every set: (n, longest, 1 or d). Without `features` each size is computed once."""
        if self.training and values.is_cuda and not self.config.features:
            # To ask the GPU for the sizes that occur would be to wait for it, in the middle of a step.
            return self.every_size(mask.shape[1])[mask.sum(1).clamp(min=1) - 1]
        sizes = mask.sum(1).cpu().clamp(min=1)
        if self.config.features:
            return self.coefficients(sizes, values[:, : int(sizes.max())])
        distinct, which = sizes.unique(return_inverse=True)
        return self.coefficients(distinct)[which.to(values.device)]
