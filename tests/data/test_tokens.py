"""Sentences to numbers and back, by words and by pieces."""

from pathlib import Path

from diptych.data.tokens import PieceTokenizer, WordTokenizer, encode, load_tokenizer
from diptych.data.vocabulary import SPECIAL, Vocabulary


def words(limit: int | None = None) -> WordTokenizer:
    return WordTokenizer(Vocabulary([*SPECIAL, "dog", "runs"]), limit)


def test_words() -> None:
    tokenizer = words()
    assert tokenizer.ids("Dog runs fast.") == [1, 4, 5, 3, 2]
    assert tokenizer.pieces([1, 4, 5, 3, 2]) == ["<start>", "dog", "runs", "<unk>", "<end>"]
    assert tokenizer.size == 6
    assert tokenizer.mask_id == 3
    assert tokenizer.special_ids == {0, 1, 2}


def test_a_long_sentence_is_cut_before_its_end() -> None:
    assert words(limit=3).ids("dog runs dog runs") == [1, 4, 2]
    assert words(limit=6).ids("dog runs dog runs") == [1, 4, 5, 4, 5, 2]
    assert words(limit=50).ids("dog " * 48) == [1, *[4] * 48, 2]
    assert words(limit=50).ids("dog " * 49) == [1, *[4] * 48, 2]


def test_a_sentence_without_words_keeps_its_ends() -> None:
    assert words().ids("...") == [1, 2]


def test_a_mask_word_of_its_own() -> None:
    assert WordTokenizer(Vocabulary([*SPECIAL, "<mask>"])).mask_id == 4


def test_a_batch_is_padded() -> None:
    batch = encode(words(), ["dog", "dog runs dog"])
    assert batch.ids.tolist() == [[1, 4, 2, 0, 0], [1, 4, 5, 4, 2]]
    assert batch.lengths.tolist() == [3, 5]


def test_saved_words_load(tmp_path: Path) -> None:
    words().save(tmp_path)
    loaded = load_tokenizer(tmp_path, limit=3)
    assert loaded.ids("dog runs") == [1, 4, 2]


def test_pieces(tiny_bert: str, tmp_path: Path) -> None:
    tokenizer = PieceTokenizer.load(tiny_bert)
    ids = tokenizer.ids("two dogs")
    assert tokenizer.pieces(ids) == ["[CLS]", "two", "dog", "##s", "[SEP]"]
    assert tokenizer.pieces([tokenizer.mask_id]) == ["[MASK]"]
    assert {ids[0], ids[-1], 0} <= tokenizer.special_ids
    assert PieceTokenizer.load(tiny_bert, limit=3).ids("two dogs sits") == [ids[0], ids[1], ids[-1]]
    assert encode(tokenizer, ["dog", "two dogs"]).lengths.tolist() == [3, 5]
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.ids("two dogs") == ids
    assert loaded.size == tokenizer.size
