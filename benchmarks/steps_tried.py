"""Changes to training steps that are not in the package, to see what they would bring."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.device import sent
from diptych.data.batches import Tokens
from diptych.encoders.encoded import Encoded
from diptych.matchers.base import Matcher
from diptych.training.batches import Batch
from diptych.training.log import Measured
from steps import Steps


@dataclass(frozen=True)
class Change:
    """What is done to a matcher before it trains, or to the trainer after it is built."""

    before: Callable[[Matcher], None] | None = None
    after: Callable[[Steps], None] | None = None


def group_texts(count: int) -> Callable[[Matcher], None]:
    """The text encoder sees sentences in so many groups of like length, each padded to its own longest."""

    def change(matcher: Matcher) -> None:
        encoder = matcher.text_encoder
        plain = encoder.forward

        def forward(batch: Tokens) -> Encoded:
            lengths = batch.known_lengths
            order = lengths.argsort()
            vectors: list[Tensor] = []
            width = batch.ids.shape[1]
            for part in order.tensor_split(count):
                longest = -(-int(lengths[part].max()) // 8) * 8
                where = sent(part, batch.ids.device)
                told = plain(Tokens(batch.ids[where, :longest], batch.mask[where, :longest]))
                pads = width - told.vectors.shape[1]
                vectors.append(F.pad(told.vectors, (0, 0, 0, pads)))
            back = sent(order.argsort(), batch.ids.device)
            together = torch.cat(vectors)[back]
            return Encoded(together, batch.mask, together[:, 0], together)

        encoder.forward = forward  # type: ignore[method-assign]

    return change


def contiguous(trainer: Steps) -> None:
    """Convolutions over (channels, height, width) in that order."""
    backbone: Any = trainer.matcher.image_encoder.backbone
    backbone.to(memory_format=torch.contiguous_format)
    backbone.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(),))


def compile_mode(mode: str) -> Callable[[Steps], None]:
    """The vision backbone compiled in another mode."""

    def change(trainer: Steps) -> None:
        backbone: Any = trainer.matcher.image_encoder.backbone
        backbone.compile(dynamic=False, mode=mode)

    return change


def compiled_views(trainer: Steps) -> None:
    """Cutting views of held pictures compiled too."""
    assert trainer.held is not None
    trainer.held.cut = torch.compile(trainer.held.cut, dynamic=False)  # type: ignore[method-assign]


def compiled_pools(trainer: Steps) -> None:
    """Pooling compiled as well: the sorting and weighing of all cells and words."""
    for gpo in trainer.matcher.pools().values():
        gpo._theta = torch.compiler.disable(gpo._theta)  # type: ignore[method-assign]
        gpo.compile(dynamic=True)


def pools_aside(trainer: Steps) -> None:
    """The coefficients of pooling depend on its weights alone: another stream computes them beside the backbones."""
    if trainer.fabric.device.type != "cuda":
        return
    aside, plain, pools = torch.cuda.Stream(), trainer.step, trainer.matcher.pools()
    tables: dict[str, Tensor] = {}
    for side, gpo in pools.items():

        def theta(values: Tensor, mask: Tensor, side: str = side) -> Tensor:
            torch.cuda.current_stream().wait_stream(aside)
            return tables[side][mask.sum(1).clamp(min=1) - 1][:, : mask.shape[1]]

        gpo._theta = theta  # type: ignore[method-assign]

    def step(batch: Batch) -> Measured:
        regions = batch.images.mask.shape[1] if hasattr(batch.images, "mask") else math.prod(grid_of(trainer))
        sides = {"pictures": regions, "sentences": batch.texts.ids.shape[1]}
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for side, gpo in pools.items():
                tables[side] = gpo.every_size(sides[side])
                tables[side].record_stream(torch.cuda.current_stream())
        return plain(batch)

    trainer.step = step  # type: ignore[method-assign]


def grid_of(trainer: Steps) -> tuple[int, int]:
    backbone: Any = trainer.matcher.image_encoder.backbone
    rows, columns = backbone.grid
    return rows, columns


class Folded(nn.Module):
    """A convolution whose weights are those of a BatchNorm of fixed statistics too: nothing of it is left to save."""

    def __init__(self, convolution: Any, norm: Any, shifted: bool) -> None:
        super().__init__()
        self.convolution, self.norm, self.shifted = convolution, norm, shifted

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width)."""
        conv, norm = self.convolution, self.norm
        weight, bias = conv.weight, None
        if norm is not None:
            scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
            weight, bias = weight * scale.view(-1, 1, 1, 1), norm.bias - norm.running_mean * scale
        if not self.shifted or conv.groups == 1:
            x = conv.static_padding(x)
            return F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)
        return shifted_sum(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype), conv)


def shifted_sum(x: Tensor, weight: Tensor, bias: Tensor | None, conv: Any) -> Tensor:
    """A depthwise convolution as a sum of shifted products, which the compiler makes one kernel of."""
    (height, width), stride = conv.kernel_size, conv.stride[0]
    down, across = conv.padding
    x = F.pad(conv.static_padding(x), (across, across, down, down))
    rows, columns = ((size - kernel) // stride + 1 for size, kernel in zip(x.shape[2:], (height, width), strict=True))
    total: Tensor | None = None
    for i in range(height):
        for j in range(width):
            part = x[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
            part = part * weight[:, 0, i, j].view(1, -1, 1, 1)
            total = part if total is None else total + part
    assert total is not None
    return total if bias is None else total + bias.view(1, -1, 1, 1)


def convolved(norms: bool, shifted: bool) -> Callable[[Matcher], None]:
    """BatchNorm taken into the convolutions, depthwise convolutions as sums, or both."""

    def change(matcher: Matcher) -> None:
        model: Any = matcher.image_encoder.backbone.model  # type: ignore[union-attr]
        pairs = [(model, "_conv_stem", "_bn0"), (model, "_conv_head", "_bn1")]
        for block in model._blocks:
            pairs += [
                (block, "_expand_conv", "_bn0"), (block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")
            ]  # fmt: skip
        for owner, convolution, norm in pairs:
            if hasattr(owner, convolution):
                folded = Folded(getattr(owner, convolution), getattr(owner, norm) if norms else None, shifted)
                setattr(owner, convolution, folded)
                if norms:
                    setattr(owner, norm, nn.Identity())

    return change


TRIED = {
    "text-groups-2": Change(before=group_texts(2)),
    "text-groups-4": Change(before=group_texts(4)),
    "contiguous": Change(after=contiguous),
    "max-autotune": Change(after=compile_mode("max-autotune-no-cudagraphs")),
    "cuda-graphs": Change(after=compile_mode("reduce-overhead")),
    "compiled-views": Change(after=compiled_views),
    "compiled-pools": Change(after=compiled_pools),
    "pools-aside": Change(after=pools_aside),
    "folded": Change(before=convolved(norms=True, shifted=False)),
    "shifted": Change(before=convolved(norms=False, shifted=True)),
    "folded-shifted": Change(before=convolved(norms=True, shifted=True)),
}
