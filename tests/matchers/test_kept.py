from dataclasses import dataclass
from pathlib import Path

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
