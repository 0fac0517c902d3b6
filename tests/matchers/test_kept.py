import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.kept import Kept, kept


@dataclass(frozen=True)
class Rich(Kept):
    gram: Tensor = kept(1, 2)
    whole: Tensor = kept()


def rich(lengths: list[int], k: int | None = None) -> Rich:
    k = k or max(lengths)
    mask = torch.arange(k) < torch.tensor(lengths).unsqueeze(1)
    vectors = torch.randn(len(lengths), k, 3) * mask.unsqueeze(-1)
    return Rich(vectors, mask, vectors @ vectors.transpose(1, 2), torch.randn(len(lengths), 5))


def same(left: Rich, right: Rich) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.tensors().values(), right.tensors().values(), strict=True))


def test_items_are_taken_by_slice_list_and_tensor() -> None:
    whole = rich([1, 3, 2, 3])
    assert len(whole[1:3]) == 2
    assert same(whole[[1, 2]], whole[1:3])
    assert same(whole[torch.tensor([False, True, True, False])], whole[1:3])
    assert whole.lengths.tolist() == [1, 3, 2, 3]


def test_one_item_is_taken_by_its_position() -> None:
    whole = rich([1, 3, 2])
    for place in (1, -2, np.int64(1), torch.tensor(1)):
        assert same(whole[place], whole[[1]])
    assert [same(one, whole[[i]]) for i, one in enumerate(whole)] == [True] * 3
    for place in (3, -4):
        with pytest.raises(IndexError, match=f"item {place} of 3"):
            whole[place]


@pytest.mark.parametrize(
    "which", [[True, False, True], np.array([True, False, True]), np.array([0, 2]), (0, 2), range(0, 3, 2)]
)
def test_items_are_taken_by_booleans_and_arrays(which: Any) -> None:
    whole = rich([1, 3, 2])
    assert same(whole[which], whole[[0, 2]])
    assert len(whole[[]]) == 0


def test_an_array_of_it_has_zeros_for_pads() -> None:
    whole = rich([1, 2]).resize(3)
    whole.vectors[0, 1:] = 7.0
    array = np.asarray(whole)
    assert array.dtype == np.float32
    assert array.shape == (2, 3, 3)
    assert not array[0, 1:].any()
    np.testing.assert_array_equal(array[1, :2], whole.vectors[1, :2])
    assert np.asarray(whole.to(dtype=torch.bfloat16)).dtype == np.float32
    assert np.asarray(whole, np.float64).dtype == np.float64
    assert whole.vectors[0, 1, 0] == 7.0  # the array is a copy


def test_it_is_told_in_one_line_whatever_its_type() -> None:
    assert repr(rich([1, 3, 2])) == "Rich(3 items, 1 to 3 vectors of 3 numbers, float32 on cpu)"
    assert repr(rich([1])) == "Rich(1 item, 1 vector of 3 numbers, float32 on cpu)"
    assert repr(rich([2, 2])[[]]) == "Rich(0 items, 0 vectors of 3 numbers, float32 on cpu)"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 3))
def test_padding_and_cutting_undo_each_other(lengths: list[int], extra: int) -> None:
    whole = rich(lengths)
    padded = whole.resize(max(lengths) + extra)
    assert padded.gram.shape[1:] == (max(lengths) + extra,) * 2
    assert not padded.mask[:, max(lengths) :].any()
    assert same(padded.trim(), whole)


def test_real_vectors_are_never_cut_off() -> None:
    with pytest.raises(ValueError, match="cannot cut to 1"):
        rich([1, 2]).resize(1)


def test_extents_reach_to_the_last_real_vector() -> None:
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    kept = Kept(torch.randn(3, 4, 2), mask)
    assert kept.extents.tolist() == [3, 1, 4]
    assert kept[[0, 1]].cut(3).mask.tolist() == [[True, False, True], [False] * 3]


def test_extents_are_those_of_the_mask_as_it_is() -> None:
    """They are told once, but of what is made from it, and of a mask that was written to, anew."""
    kept = Kept(torch.randn(3, 4, 2), torch.arange(4) < torch.tensor([[1], [3], [2]]))
    assert kept.extents.tolist() == [1, 3, 2]
    assert kept.extents is kept.extents
    assert kept[[2, 1]].extents.tolist() == [2, 3]
    assert kept[1:].extents.tolist() == [3, 2]
    assert kept.resize(3).extents.tolist() == kept.resize(9).extents.tolist() == [1, 3, 2]
    assert Kept.cat([kept, kept[:1]]).extents.tolist() == [1, 3, 2, 1]
    assert replace(kept, mask=kept.mask.flip(0)).extents.tolist() == [2, 3, 1]
    assert copy.copy(kept).extents.tolist() == copy.deepcopy(kept).extents.tolist() == [1, 3, 2]
    kept.mask[0, 3] = True
    assert kept.extents.tolist() == [4, 3, 2]


def test_extents_of_what_was_kept_without_gradient() -> None:
    with torch.inference_mode():
        kept = Kept(torch.randn(2, 3, 2), torch.arange(3) < torch.tensor([[1], [3]]))
    assert kept.extents.tolist() == kept.extents.tolist() == [1, 3]


def test_parts_of_different_sizes_are_put_together() -> None:
    parts = [rich([1, 2]), rich([4]), rich([3, 1, 1])]
    whole = Rich.cat(parts)
    assert type(whole) is Rich
    assert whole.vectors.shape == (6, 4, 3)
    assert same(whole[2:3], parts[1])
    assert same(whole[:2].trim(), parts[0])


def test_floats_change_their_type_and_masks_do_not() -> None:
    half = rich([2]).to(dtype=torch.float16)
    assert half.gram.dtype == torch.float16
    assert half.mask.dtype == torch.bool


def test_detaching_cuts_the_graph() -> None:
    vectors = torch.randn(1, 1, 2, requires_grad=True)
    assert not Kept(vectors, torch.ones(1, 1, dtype=torch.bool)).detach().vectors.requires_grad


def test_a_file_of_another_type_is_refused(tmp_path: Path) -> None:
    whole = rich([2, 1])
    whole.save(tmp_path / "rich.safetensors")
    assert same(Rich.load(tmp_path / "rich.safetensors"), whole)
    with pytest.raises(DiptychError, match=r"rich\.safetensors.*expected \['mask', 'vectors'\]"):
        Kept.load(tmp_path / "rich.safetensors")
