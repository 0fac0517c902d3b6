import json
from pathlib import Path

import numpy as np
import pytest
import torch

from diptych.encoders.preprocess import normalise
from diptych.encoders.quick.folded import fold, run_folded
from diptych.encoders.quick.int8_ranges import FILE, measured_ranges, read_ranges, write_ranges
from tests.encoders.pictures import picture
from tests.encoders.quick.test_folded import encoder


def test_ranges_hold_all_that_goes_in_and_zero() -> None:
    whole = encoder()
    blocks = fold(whole)
    assert blocks is not None
    pictures = [whole.backbone.prepare(picture(seed=seed)) for seed in range(2)]
    ranges = measured_ranges(whole, blocks, pictures)
    convolutions = [convolution for block in blocks for convolution in block.convolutions]
    assert len(ranges) == len(convolutions)
    left_out = [place for place, within in enumerate(ranges) if within is None]
    assert left_out == [place for place, c in enumerate(convolutions) if c.depthwise][:2]
    preprocess = whole.backbone.preprocess
    with torch.inference_mode():
        given = [x for x, _ in run_folded(blocks, normalise(pictures, preprocess.mean, preprocess.std))]
    for x, within in zip(given, ranges, strict=True):
        if within is not None:
            low, high = within
            assert low == pytest.approx(min(0.0, float(x.min())), abs=1e-3)
            assert high == pytest.approx(max(0.0, float(x.max())), abs=1e-3)


def test_ranges_are_read_for_their_own_weights_only(tmp_path: Path) -> None:
    whole = encoder()
    ranges = [None, (-1.0, 2.5), (0.0, 6.0)]
    assert read_ranges(tmp_path, whole, 3) is None
    assert read_ranges(None, whole, 3) is None
    write_ranges(tmp_path, whole, ranges)
    assert read_ranges(tmp_path, whole, 3) == ranges
    assert read_ranges(tmp_path, whole, 4) is None
    with torch.no_grad():
        whole.fc.bias.add_(1)
    assert read_ranges(tmp_path, whole, 3) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranges": 3}', '{"ranges": [[1]]}', '{"ranges": [["a", 2]]}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_ranges(tmp_path, encoder(), 1) is None


def test_a_range_without_zero_or_width_is_refused(tmp_path: Path) -> None:
    whole = encoder()
    for wrong in ((1.0, 2.0), (0.0, 0.0), (0.0, float(np.nan))):
        write_ranges(tmp_path, whole, [(0.0, 6.0)])
        tree = json.loads((tmp_path / FILE).read_text())
        (tmp_path / FILE).write_text(json.dumps({**tree, "ranges": [wrong]}))
        assert read_ranges(tmp_path, whole, 1) is None
