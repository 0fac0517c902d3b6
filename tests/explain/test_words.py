import numpy as np

from diptych.data.tokens import PieceTokenizer, WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.explain.words import Word, _by_marks, mean_words, sentence_words, sum_words

VOCABULARY = Vocabulary.build(["a red dog"], at_least=1)


def test_a_word_that_is_not_known_is_shown_as_it_is_written() -> None:
    found = sentence_words(WordTokenizer(VOCABULARY), "A red unicorn!")
    assert found == [Word("a", (1,)), Word("red", (2,)), Word("unicorn", (3,))]


def test_words_that_are_cut_off_are_not_shown() -> None:
    for limit, expected in ((5, ["a", "red", "dog"]), (4, ["a", "red"]), (3, ["a"]), (2, []), (1, [])):
        assert [w.text for w in sentence_words(WordTokenizer(VOCABULARY, limit), "a red dog")] == expected


def test_pieces_of_a_word_belong_together(tiny_bert: str) -> None:
    found = sentence_words(PieceTokenizer.load(tiny_bert), "Dogs and  cats")
    assert found == [Word("Dogs", (1, 2)), Word("and", (3,)), Word("cats", (4, 5))]
    assert sentence_words(PieceTokenizer.load(tiny_bert, 4), "Dogs and cats") == [Word("Dogs", (1, 2))]


def test_pieces_by_their_marks() -> None:
    pieces = ["[CLS]", "un", "##icorn", "runs", "[SEP]"]
    assert _by_marks(pieces, [1, 2, 3]) == [Word("unicorn", (1, 2)), Word("runs", (3,))]
    assert _by_marks(["▁uni", "corn", "▁runs"], [0, 1, 2]) == [Word("unicorn", (0, 1)), Word("runs", (2,))]
    assert _by_marks(["a", "dog"], [0, 1]) == [Word("a", (0,)), Word("dog", (1,))]


def test_shares_are_summed_and_values_averaged_on_any_axis() -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    words = [Word("x", (1, 3)), Word("y", (2,))]
    np.testing.assert_array_equal(sum_words(array, words, 0), [array[1] + array[3], array[2]])
    np.testing.assert_array_equal(mean_words(array, words, 0), [(array[1] + array[3]) / 2, array[2]])
    np.testing.assert_array_equal(sum_words(array.T, words), np.array([array[1] + array[3], array[2]]).T)
    np.testing.assert_array_equal(mean_words(array.T, words), np.array([(array[1] + array[3]) / 2, array[2]]).T)
    assert sum_words(array, [], 0).shape == (0, 3)
