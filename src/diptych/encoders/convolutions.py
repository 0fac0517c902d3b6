"""A sentence's word vectors to one by convolutions (Kim, 2014; MMCA eqs. 6 and 7)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.encoders.encoded import l2
from diptych.encoders.images import xavier_linear

WIDTHS = (1, 2, 3)


class TextCNN(nn.Module):
    """l2(W concat(q_1, q_2, q_3) + b), q_l the largest over words of ReLU(W_l e_{k:k+l-1} + b_l).

    A window that reaches past the last word sees zeros there, so a sentence of one word has all three widths.

    normalisation: `l2` as the paper's text says, or `layer-norm` as its eq. 7 prints
    convolve_pads: padding counts as words, and what comes out depends on how much of it there is
    """

    def __init__(
        self,
        inputs: int,
        filters: int,
        outputs: int,
        normalisation: Literal["l2", "layer-norm"] = "l2",
        convolve_pads: bool = False,
    ) -> None:
        super().__init__()
        self.convolve_pads = convolve_pads
        self.convolutions = nn.ModuleList(nn.Conv1d(inputs, filters, width) for width in WIDTHS)
        self.fc = xavier_linear(len(WIDTHS) * filters, outputs)
        self.norm = nn.LayerNorm(outputs) if normalisation == "layer-norm" else None

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """(n, words, inputs) and (n, words) -> (n, outputs)."""
        x = words.transpose(1, 2)
        real = mask.unsqueeze(1)
        if not self.convolve_pads:
            x = x * real
        pooled = []
        for width, convolution in zip(WIDTHS, self.convolutions, strict=True):
            p = convolution(F.pad(x, (0, width - 1))).relu()
            # After the ReLU nothing lies below 0, so a pad at 0 is never the largest.
            pooled.append((p if self.convolve_pads else p * real).amax(-1))
        return self.finish(torch.cat(pooled, -1))

    def in_place(self, words: Tensor, pads: Tensor | None) -> Tensor:
        """As `forward`, in float32 and without gradient: words (k, n, inputs), their positions first -> (n, outputs).

        pads: (k, n), True at padding, which `words` is overwritten at; None where there is none
        The words that a window sees besides its first are n rows further, so each is one product, added in place. Bias
        and ReLU come after the maximum, which they do not change.
        """
        k, n, inputs = words.shape
        if pads is not None:
            words.masked_fill_(pads.unsqueeze(-1), 0)
        rows = words.view(k * n, inputs)
        weights = [convolution.get_parameter("weight") for convolution in self.convolutions]
        filters = len(weights[0])
        found = rows @ torch.cat([weight[:, :, 0] for weight in weights]).T
        for step in range(1, min(max(WIDTHS), k)):
            further = torch.cat([weight[:, :, step] for weight in weights[step:]])
            found[: -step * n, step * filters :].addmm_(rows[step * n :], further.T)
        found = found.view(k, n, -1)
        if pads is not None:
            found.masked_fill_(pads.unsqueeze(-1), torch.finfo(found.dtype).min)
        bias = torch.cat([convolution.get_parameter("bias") for convolution in self.convolutions])
        return self.finish(found.amax(0).add_(bias).relu_())

    def finish(self, pooled: Tensor) -> Tensor:
        """The largest of each filter (n, 3 filters) -> (n, outputs)."""
        out: Tensor = self.fc(pooled)
        return l2(out) if self.norm is None else self.norm(out)
