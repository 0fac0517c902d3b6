"""The ranges that 8-bit integers stand for in an image encoder: measured once, and kept beside its weights."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.encoders.extract import weights_checksum
from diptych.encoders.images import PixelEncoder
from diptych.encoders.preprocess import normalise
from diptych.encoders.quick.folded import FoldedBlock, run_folded

Range = tuple[float, float]
FILE = "int8.json"
# These stay in float32: over few channels and large maps, most of the error came from them.
FLOAT_DEPTHWISE = 2


def measured_ranges(
    encoder: PixelEncoder, blocks: Sequence[FoldedBlock], pictures: Sequence[np.ndarray]
) -> list[Range | None]:
    """Least and largest value that goes into each convolution, 0 included, over prepared pictures.

    None for a convolution that stays in float32: the first two that convolve each channel for itself.
    """
    preprocess = encoder.backbone.preprocess
    ends: list[Range] = [(0.0, 0.0)] * sum(len(block.convolutions) for block in blocks)
    with torch.inference_mode():
        for picture in pictures:
            pixels = normalise([picture], preprocess.mean, preprocess.std)
            for place, (x, _) in enumerate(run_folded(blocks, pixels)):
                ends[place] = min(ends[place][0], float(x.min())), max(ends[place][1], float(x.max()))
    convolutions = [convolution for block in blocks for convolution in block.convolutions]
    depthwise = [place for place, convolution in enumerate(convolutions) if convolution.depthwise]
    return [None if place in depthwise[:FLOAT_DEPTHWISE] else range_ for place, range_ in enumerate(ends)]


def write_ranges(folder: Path, encoder: PixelEncoder, ranges: Sequence[Range | None]) -> None:
    """Keep them beside the weights that they belong to."""
    write_json(folder / FILE, {"weights": weights_checksum(encoder), "ranges": ranges})


def read_ranges(folder: Path | None, encoder: PixelEncoder, count: int) -> list[Range | None] | None:
    """Those of a model's folder for `count` convolutions; None where it has none, or they are of other weights."""
    if folder is None or not (folder / FILE).is_file():
        return None
    try:
        tree = read_json(folder / FILE)
        ranges = [None if pair is None else (float(pair[0]), float(pair[1])) for pair in tree["ranges"]]
        fits = len(ranges) == count and all(pair is None or pair[0] <= 0 < pair[1] for pair in ranges)
        return ranges if fits and tree["weights"] == weights_checksum(encoder) else None
    except (DiptychError, KeyError, TypeError, ValueError, IndexError):
        return None
