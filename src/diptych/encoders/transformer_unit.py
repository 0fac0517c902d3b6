"""The post-norm Transformer unit of MMCA (eqs. 1 to 4), in steps, so that what depends on one side is done once."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.encoders.images import xavier_linear


class TransformerUnit(nn.Module):
    """LN(x + MultiHead(x)), then LN(y + FFN(y)), FFN of width d with ReLU; no biases in the attention, no dropout.

    scale: queries times keys are divided by sqrt(d / heads) (`head`, eq. 1) or by sqrt(d) (`dim`, eq. 11)
    """

    def __init__(self, dim: int, heads: int, scale: Literal["head", "dim"] = "head") -> None:
        super().__init__()
        self.heads = heads
        self.divisor = math.sqrt(dim / heads if scale == "head" else dim)
        self.query = xavier_linear(dim, dim, bias=False)
        self.key = xavier_linear(dim, dim, bias=False)
        self.value = xavier_linear(dim, dim, bias=False)
        self.output = xavier_linear(dim, dim, bias=False)
        self.norm1 = nn.LayerNorm(dim)
        self.fc1 = xavier_linear(dim, dim)
        self.fc2 = xavier_linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)

    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (scaled), keys and values: three of (n, k, d)."""
        return self.query(x) / self.divisor, self.key(x), self.value(x)

    def split(self, x: Tensor) -> Tensor:
        """(n, k, d) -> (n, k, heads, d / heads)."""
        return x.reshape(*x.shape[:-1], self.heads, -1)

    def affinity(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Within one item: (n, heads, k, k), in float32, the lowest number where the key is a pad."""
        a = torch.einsum("nrhd,nkhd->nhrk", self.split(queries), self.split(keys))
        a = a.to(torch.promote_types(a.dtype, torch.float32))
        return a.masked_fill(~mask[:, None, None, :], torch.finfo(a.dtype).min)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attention within each item (n, k, d), and the log of each row's sum of exponentials (n, k, heads).

        With both, attention over these and further elements can be put together later without doing this part again.
        """
        a = self.affinity(queries, keys, mask)
        weights = a.softmax(-1).to(values.dtype)
        attended = torch.einsum("nhrk,nkhd->nrhd", weights, self.split(values)).flatten(-2)
        return attended, a.logsumexp(-1).transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows the heads: output map, residuals, norms and FFN, (..., k, d)."""
        y = self.norm1(x + self.output(attended))
        out: Tensor = self.norm2(y + self.fc2(self.fc1(y).relu_()))
        return out

    def finish_in_place(self, x: Tensor, attended: Tensor) -> Tensor:
        """As `finish`, in float32 and without gradient; x (..., k, d) need only broadcast to what was attended to.

        The second Linear is added to y where y lies. Its bias is part of y from the start, and the first Linear's bias
        is less by what that changes.
        """
        d = (attended.shape[-1],)
        s = self.output(attended).add_(x)
        y = F.layer_norm(s, d, self.norm1.weight, self.norm1.bias + self.fc2.bias, self.norm1.eps).view(-1, *d)
        h = F.linear(y, self.fc1.weight, self.fc1.bias - self.fc1.weight @ self.fc2.bias).relu_()
        y.addmm_(h, self.fc2.weight.T)
        return F.layer_norm(y, d, self.norm2.weight, self.norm2.bias, self.norm2.eps).view(attended.shape)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(n, k, d) and (n, k) -> (n, k, d)."""
        return self.finish(x, self.attend(*self.maps(x), mask)[0])
