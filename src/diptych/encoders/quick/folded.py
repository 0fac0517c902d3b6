"""EfficientNet-Lite and the Linear behind it as a plain list of convolutions, BatchNorm folded into their weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from diptych.encoders.efficientnet import EfficientNetLite
from diptych.encoders.images import PixelEncoder

MOST = 6.0  # of a ReLU6


@dataclass(frozen=True)
class FoldedConvolution:
    """One convolution with its bias.

    weight: (out, in / groups, rows, columns); bias: (out,)
    padding: top, left, bottom, right
    depthwise: each channel is convolved for itself
    clipped: a ReLU6 follows
    """

    weight: Tensor
    bias: Tensor
    stride: int
    padding: tuple[int, int, int, int]
    depthwise: bool
    clipped: bool

    def __call__(self, x: Tensor) -> Tensor:
        """(n, in, height, width) -> (n, out, height', width')."""
        top, left, bottom, right = self.padding
        groups = len(self.weight) if self.depthwise else 1
        y = F.conv2d(F.pad(x, (left, right, top, bottom)), self.weight, self.bias, self.stride, groups=groups)
        return y.clamp(0, MOST) if self.clipped else y


@dataclass(frozen=True)
class FoldedBlock:
    """Convolutions one after another; with `skip`, what went in is added to what comes out."""

    convolutions: tuple[FoldedConvolution, ...]
    skip: bool


def fold(encoder: PixelEncoder) -> list[FoldedBlock] | None:
    """Normalised pixels to the cells' vectors, as blocks; None where the encoder is of another kind."""
    backbone = encoder.backbone
    if not isinstance(backbone, EfficientNetLite) or encoder.config.cells is not None:
        return None
    model = backbone.model
    blocks = [FoldedBlock((_folded(model._conv_stem, model._bn0, clipped=True),), skip=False)]
    for block in model._blocks:
        given = block._block_args
        convolutions = [
            _folded(block._depthwise_conv, block._bn1, clipped=True),
            _folded(block._project_conv, block._bn2, clipped=False),
        ]
        if given.expand_ratio != 1:
            convolutions.insert(0, _folded(block._expand_conv, block._bn0, clipped=True))
        fits = given.input_filters == given.output_filters and all(c.stride == 1 for c in convolutions)
        blocks.append(FoldedBlock(tuple(convolutions), skip=bool(block.id_skip and fits)))
    blocks.append(FoldedBlock((_folded(model._conv_head, model._bn1, clipped=True),), skip=False))
    weight, bias = encoder.fc.weight.detach()[:, :, None, None], encoder.fc.bias.detach()
    blocks.append(FoldedBlock((FoldedConvolution(weight, bias, 1, (0, 0, 0, 0), False, False),), skip=False))
    return blocks


def run_folded(blocks: Sequence[FoldedBlock], pixels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """What goes into each convolution and what comes out, in their order; at the end of a block that skips, the sum."""
    x = pixels
    for block in blocks:
        y = x
        for convolution in block.convolutions:
            before, y = y, convolution(y)
            if convolution is block.convolutions[-1] and block.skip:
                y = y + x
            yield before, y
        x = y


def _folded(convolution: Any, norm: nn.BatchNorm2d, clipped: bool) -> FoldedConvolution:
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None  # which these BatchNorms have
    assert variance is not None
    weight, bias = fuse_conv_bn_weights(
        convolution.weight, convolution.bias, mean, variance, norm.eps, norm.weight, norm.bias
    )
    top, left = convolution.padding
    padding = (top, left, top, left)
    apart = getattr(convolution, "static_padding", None)
    if isinstance(apart, nn.ZeroPad2d):
        left, right, top, bottom = apart.padding
        padding = (top, left, bottom, right)
    depthwise = convolution.groups > 1
    return FoldedConvolution(weight.detach(), bias.detach(), convolution.stride[0], padding, depthwise, clipped)
