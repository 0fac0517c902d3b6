"""A folded EfficientNet-Lite as a graph of OpenVINO, in float32 or in 8-bit integers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from diptych.encoders.preprocess import Preprocess
from diptych.encoders.quick.folded import MOST, FoldedBlock, FoldedConvolution
from diptych.encoders.quick.int8_ranges import Range

LEVELS = 256


def image_graph(blocks: Sequence[FoldedBlock], preprocess: Preprocess, ranges: Sequence[Range | None]) -> Any:
    """uint8 (n, size, size, 3) -> float32 (n, cells, d): an `openvino.Model`.

    ranges: least and largest value that goes into each convolution, in their order; its inputs and weights are then
    8-bit integers, and what comes out of it is float32 again. With None all of it is float32.
    """
    import openvino as ov
    from openvino import opset13 as op

    size = preprocess.size
    pixels = op.parameter([-1, size, size, 3], np.uint8, name="pixels")
    mean, std = (np.array(values, np.float32).reshape(1, 1, 1, 3) for values in (preprocess.mean, preprocess.std))
    x = op.add(op.multiply(op.convert(pixels, np.float32), 1 / (255 * std)), -mean / std)
    x = op.transpose(x, np.array([0, 3, 1, 2]))
    within = iter(ranges)
    for block in blocks:
        y = x
        for convolution in block.convolutions:
            y = _convolved(op, y, convolution, next(within))
        x = op.add(y, x) if block.skip else y
    x = op.transpose(x, np.array([0, 2, 3, 1]))
    cells = op.reshape(x, np.array([0, -1, len(blocks[-1].convolutions[-1].weight)]), special_zero=True)
    return ov.Model([cells], [pixels], "pictures")


def _convolved(op: Any, x: Any, convolution: FoldedConvolution, within: Range | None) -> Any:
    weight = convolution.weight.numpy()
    bias = convolution.bias.numpy().reshape(1, -1, 1, 1)
    if convolution.depthwise:
        weight = weight[:, None]  # (groups, out of each, in of each, rows, columns)
    if within is not None:
        low, high = _with_zero(*within)
        x = op.fake_quantize(x, low, high, low, high, LEVELS)
        most = np.abs(weight).max(axis=tuple(range(1, weight.ndim)), keepdims=True)
        most = np.maximum(most, np.float32(1e-8))
        # One level fewer: 0 is then one of them, as far from both ends.
        weight = op.fake_quantize(op.constant(weight), -most, most, -most, most, LEVELS - 1)
    top, left, bottom, right = convolution.padding
    apply = op.group_convolution if convolution.depthwise else op.convolution
    stride = [convolution.stride] * 2
    y = op.add(apply(x, weight, stride, [top, left], [bottom, right], [1, 1]), bias)
    return op.clamp(y, 0.0, MOST) if convolution.clipped else y


def _with_zero(low: float, high: float) -> tuple[np.float32, np.float32]:
    """The range moved by less than a level so that 0, which pads are, is one of its levels."""
    step = (high - low) / (LEVELS - 1)
    below = round(-low / step)
    return np.float32(-below * step), np.float32((LEVELS - 1 - below) * step)
