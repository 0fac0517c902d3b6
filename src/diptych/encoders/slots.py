"""Set prediction (DivE): K slots that compete for the local vectors of a picture or a sentence.

Slot attention with three changes: learned initial slots, a residual sum in place of the GRU, and the global feature
added at the end. Each change can be taken back (`initial_slots`, `update`, `global_feature`).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.encoders.encoded import l2
from diptych.encoders.images import xavier_linear
from diptych.encoders.slot_iterations import Iterating, SlotWeights, iterate_slots


@dataclass(frozen=True)
class PredictedSet:
    """What set prediction gives.

    vectors: (n, slots, d), unit vectors, the embedding set
    slots: (n, slots, d), the normalised slots before the global feature was added
    weights: for each iteration (n, heads, slots, inputs), how much each slot takes of each input; a slot's sum is 1.
        In training they have no gradient
    """

    vectors: Tensor
    slots: Tensor
    weights: tuple[Tensor, ...]


def position_code(lengths: Tensor, size: int, dim: int) -> Tensor:
    """Sine and cosine code of the place in a sentence: (n, size, dim).

    Position p of n (from 1) has the angle 2 pi p / n, divided by 10000^(2 floor(i/2) / dim) for dimension i; sine on
    even and cosine on odd dimensions.
    """
    place = torch.arange(1, size + 1, device=lengths.device, dtype=torch.float32)
    angle = 2 * math.pi * place / lengths.to(torch.float32).clamp(min=1e-6).unsqueeze(1)
    find = _find_dimensions if torch.compiler.is_compiling() else _dimensions
    divisor, even = find(dim, lengths.device)
    angle = angle.unsqueeze(-1) / divisor
    return torch.where(even, angle.sin(), angle.cos())


@lru_cache(maxsize=16)
def _dimensions(dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What each dimension's angle is divided by, and whether it is even; kept, for every step asks for the same."""
    with torch.inference_mode(False):
        return _find_dimensions(dim, device)


def _find_dimensions(dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    i = torch.arange(dim, device=device)
    return 10000 ** (2 * (i // 2) / dim), i % 2 == 0


class SlotAttention(nn.Module):
    """Slots attend to inputs: softmax over slots, then each slot's weights divided by their sum over inputs."""

    def __init__(self, dim: int, input_dim: int, heads: int, head_dim: int, dropout: float, legacy_mask: bool) -> None:
        super().__init__()
        self.heads = heads
        self.legacy_mask = legacy_mask
        self.norm = nn.LayerNorm(dim)
        self.norm_inputs = nn.LayerNorm(input_dim)
        self.to_q = xavier_linear(dim, heads * head_dim, bias=False)
        self.to_k = xavier_linear(input_dim, heads * head_dim, bias=False)
        self.to_v = xavier_linear(input_dim, heads * head_dim, bias=False)
        self.to_out = nn.Linear(heads * head_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def inputs(self, locals_: Tensor, position: Tensor | None) -> tuple[Tensor, Tensor]:
        """Keys and values, the same in every iteration: two of (n, heads, inputs, head_dim)."""
        normal = self.norm_inputs(locals_)
        keys = self.to_k(normal if position is None else normal + position)
        return self._split(keys), self._split(self.to_v(normal))

    def forward(self, slots: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What each slot gathers (n, slots, d), and with which weights (n, heads, slots, inputs)."""
        queries = self._split(self.to_q(self.norm(slots)))
        affinity = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
        share = affinity.to(torch.promote_types(affinity.dtype, torch.float32)).softmax(-2)
        # The published code masks before the softmax over slots, which gives every pad 1/K; a pad's right share is 0.
        pads = ~mask[:, None, None, :]
        share = share.masked_fill(pads, 1 / slots.shape[1] if self.legacy_mask else 0.0)
        weights = share / (share.sum(-1, keepdim=True) + 1e-7)
        gathered = (weights.to(values.dtype) @ values).transpose(1, 2).flatten(2)
        return self.dropout(self.to_out(gathered)), weights

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class SlotFeedForward(nn.Module):
    """FFN(LN(slots)): d - mult d - d, GELU."""

    def __init__(self, dim: int, mult: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, mult * dim)
        self.fc2 = nn.Linear(mult * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, slots: Tensor) -> Tensor:
        """(n, slots, d) -> (n, slots, d)."""
        out: Tensor = self.fc2(self.dropout(nn.functional.gelu(self.fc1(self.norm(slots)))))
        return out


class SetPrediction(nn.Module):
    """Local vectors and a global feature to a set of K unit vectors: l2(LN(global) + LN(slots)).

    T iterations with shared weights: slots += attention(slots, inputs); slots += FFN(LN(slots)).

    The tensors are those of the authors' checkpoints, one to one (with shared weights their layers t = 0, 1, … hold
    the same tensors; `img_enc.spm.` and `txt_enc.spm.` stand before the names):

        residual_norm                                    global_norm
        agg_block.latents                       (K, d)   slots
        agg_block.layers.t.0.norm                        attention.norm
        agg_block.layers.t.0.norm_context                attention.norm_inputs
        agg_block.layers.t.0.fn.to_q, to_k, to_v         attention.to_q, to_k, to_v
        agg_block.layers.t.0.fn.to_out.0                 attention.to_out
        agg_block.layers.t.2.norm                        feed_forward.norm
        agg_block.layers.t.2.fn.net.0, net.3             feed_forward.fc1, fc2
        agg_block.last_layer.0                           slots_norm
        agg_block.slots_mu, slots_log_sigma  (1, 1, d)   slots_mean, slots_log_std (d), where slots start at random
    """

    compiles = True  # operations on tensors alone

    def __init__(
        self,
        dim: int,
        input_dim: int,
        *,
        slots: int = 4,
        iterations: int = 4,
        heads: int = 4,
        head_dim: int = 512,
        feed_forward: int = 4,
        dropout: float = 0.1,
        initial_slots: Literal["learned", "random"] = "learned",
        update: Literal["residual", "gru"] = "residual",
        global_feature: bool = True,
        position: bool = False,
        legacy_mask: bool = False,
    ) -> None:
        super().__init__()
        self.count, self.dim, self.iterations = slots, dim, iterations
        self.position, self.legacy_mask = position, legacy_mask
        if initial_slots == "learned":
            self.slots = nn.Parameter(torch.randn(slots, dim))
        else:
            bound = math.sqrt(3 / dim)
            self.slots_mean = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))
            self.slots_log_std = nn.Parameter(torch.empty(dim).uniform_(-bound, bound))
            # One draw for good, saved with the weights: at evaluation a score must depend on its own pair alone.
            noise = torch.randn(slots, dim, generator=torch.Generator().manual_seed(0))
            self.register_buffer("slots_noise", noise)
        self.random = initial_slots == "random"
        self.attention = SlotAttention(dim, input_dim, heads, head_dim, dropout, legacy_mask)
        self.gru = nn.GRUCell(dim, dim) if update == "gru" else None
        self.feed_forward = SlotFeedForward(dim, feed_forward, dropout)
        self.slots_norm = nn.LayerNorm(dim)
        self.global_norm = nn.LayerNorm(dim) if global_feature else None

    def forward(self, locals_: Tensor, mask: Tensor, whole: Tensor | None = None) -> PredictedSet:
        """Locals (n, inputs, w), their mask (n, inputs) and the global feature (n, d) to a set (n, slots, d)."""
        keys, values = self.attention.inputs(locals_, self._position(locals_, mask))
        slots, weights = self._iterate(self._initial(len(locals_)), keys, values, mask)
        slots = self.slots_norm(slots)
        if self.global_norm is None:
            return PredictedSet(l2(slots), slots, weights)
        assert whole is not None
        return PredictedSet(l2(self.global_norm(whole).unsqueeze(1) + slots), slots, weights)

    def _iterate(self, slots: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The slots after all iterations, and the weights of each."""
        # A compiler sees more in the plain iterations.
        if self.training and self.gru is None and not torch.compiler.is_compiling():
            out, taken = iterate_slots(self._iterating(), slots, keys, values, mask, self._slot_weights())
            return out, taken.unbind(0)
        all_weights = []
        for _ in range(self.iterations):
            gathered, weights = self.attention(slots, keys, values, mask)
            if self.gru is None:
                slots = slots + gathered
            else:
                slots = self.gru(gathered.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
            slots = slots + self.feed_forward(slots)
            all_weights.append(weights)
        return slots, tuple(all_weights)

    def _iterating(self) -> Iterating:
        attention, ffn = self.attention, self.feed_forward
        pad_share = 1 / self.count if self.legacy_mask else 0.0
        return Iterating(
            self.iterations, pad_share, (attention.norm.eps, ffn.norm.eps), (attention.dropout.p, ffn.dropout.p)
        )

    def _slot_weights(self) -> SlotWeights:
        attention, ffn = self.attention, self.feed_forward
        return SlotWeights(
            attention.norm.weight,
            attention.norm.bias,
            attention.to_q.weight,
            attention.to_out.weight,
            attention.to_out.bias,
            ffn.norm.weight,
            ffn.norm.bias,
            ffn.fc1.weight,
            ffn.fc1.bias,
            ffn.fc2.weight,
            ffn.fc2.bias,
        )

    def _initial(self, n: int) -> Tensor:
        if not self.random:
            return self.slots.expand(n, -1, -1)
        if self.training:
            noise = torch.randn(n, self.count, self.dim, device=self.slots_mean.device, dtype=self.slots_mean.dtype)
        else:
            noise = self.get_buffer("slots_noise").expand(n, -1, -1)
        return self.slots_mean + self.slots_log_std.exp() * noise

    def _position(self, locals_: Tensor, mask: Tensor) -> Tensor | None:
        if not self.position:
            return None
        size, dim = locals_.shape[1:]
        # The published code takes the padded length for n, plus a millionth.
        lengths = torch.full_like(mask[:, 0], size + 1e-6, dtype=torch.float32) if self.legacy_mask else mask.sum(1)
        return position_code(lengths, size, dim).to(locals_.dtype)
