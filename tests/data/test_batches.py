"""Padding: what is real stays, the mask says where, and nothing else is True."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures, Pixels, Tokens, pad_regions, pad_tokens
from diptych.data.collection import Regions


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.integers(1, 4))
def test_regions(counts: list[int], dim: int) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=(n, dim)).astype(np.float32) for n in counts]
    batch = pad_regions([Regions(a) if i % 2 else a for i, a in enumerate(arrays)])
    assert batch.vectors.shape == (len(counts), max(counts), dim)
    assert batch.vectors.dtype == torch.float32
    assert batch.mask.sum(1).tolist() == counts
    for i, array in enumerate(arrays):
        assert np.array_equal(batch.vectors[i][batch.mask[i]].numpy(), array)
        assert not batch.vectors[i][~batch.mask[i]].any()


def test_half_precision_regions_become_float32() -> None:
    assert pad_regions([np.ones((2, 3), np.float16)]).vectors.dtype == torch.float32


def test_regions_of_different_dimensions() -> None:
    with pytest.raises(DiptychError, match="dimension 4; expected 3 as in the first picture"):
        pad_regions([np.ones((2, 3)), np.ones((2, 4))])


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused_with_the_pictures_name(wrong: float) -> None:
    good, bad = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    bad[2, 1] = wrong
    with pytest.raises(DiptychError, match=rf"b\.jpg: its local features hold {wrong} \(vector 2, number 1\)"):
        pad_regions([good, bad], ["a.jpg", "b.jpg"])
    with pytest.raises(DiptychError, match="picture 1 of 2: its local features"):
        pad_regions([good, Regions(bad)])


def test_no_regions() -> None:
    assert len(pad_regions([])) == 0


@given(st.lists(st.lists(st.integers(0, 99), max_size=8), min_size=1, max_size=5), st.integers(0, 99))
def test_tokens(rows: list[list[int]], pad: int) -> None:
    batch = pad_tokens(rows, pad)
    assert batch.lengths.tolist() == [len(row) for row in rows]
    for i, row in enumerate(rows):
        assert batch.ids[i][batch.mask[i]].tolist() == row
        assert all(value == pad for value in batch.ids[i][~batch.mask[i]].tolist())


def test_batches_move() -> None:
    features = LocalFeatures(torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)).to("meta")
    tokens = Tokens(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)).to("meta")
    pixels = Pixels(torch.zeros(2, 3, 4, 4)).to("meta")
    for tensor in (features.vectors, features.mask, tokens.ids, tokens.mask, pixels.values):
        assert tensor.device.type == "meta"
    assert len(features) == len(tokens) == len(pixels) == 2


def test_widened_sentences_have_pads_up_to_a_multiple() -> None:
    batch = pad_tokens([[1, 2, 3], [4]])
    wide = batch.widened(8)
    assert wide.ids.shape == wide.mask.shape == (2, 8)
    assert torch.equal(wide.ids[:, :3], batch.ids)
    assert wide.lengths.tolist() == [3, 1]
    assert wide.widened(8) is wide
    assert batch.widened(1) is batch


def test_what_a_gpu_would_be_asked_is_known_before_a_batch_goes_there() -> None:
    """The device `meta` holds no numbers: whoever asks one of it gets an error."""
    tokens = pad_tokens([[5, 6, 7], [5], [5, 6]])
    assert tokens.to("meta").to("meta").known_lengths.tolist() == [3, 1, 2]
    ragged = pad_regions([np.ones((2, 4)), np.ones((3, 4))]).to("meta").to("meta")
    assert ragged.real is not None
    assert ragged.real.shape == (5,)
    assert pad_regions([np.ones((3, 4)), np.ones((3, 4))]).to("meta").real is None


def test_places_of_what_is_real_are_in_order() -> None:
    batch = pad_regions([np.ones((2, 4)), np.ones((3, 4)), np.ones((1, 4))])
    assert batch.real is not None
    assert batch.real.tolist() == [0, 1, 3, 4, 5, 6]
    moved = batch.to("cpu").real
    assert moved is not None
    assert moved.tolist() == batch.real.tolist()
