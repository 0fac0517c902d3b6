from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.encoders.word_vectors import read_word_vectors

WORDS = ["<pad>", "dog", "cat", "naïve"]


def test_rows_are_found_by_word_and_the_others_left_out(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("cat 0.5 -1e-2\nhorse 9 9\nnaïve 1 2\n", encoding="utf-8")
    found = read_word_vectors(str(path), WORDS, 2)
    assert set(found) == {2, 3}
    np.testing.assert_array_equal(found[2], np.array([0.5, -0.01], dtype=np.float32))
    assert found[3].dtype == np.float32


def test_a_word2vec_header_is_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("2 3\ndog 1 2 3\ncat 4 5 6\n")
    assert {row: v.tolist() for row, v in read_word_vectors(str(path), WORDS, 3).items()} == {
        1: [1, 2, 3],
        2: [4, 5, 6],
    }


def test_bad_files_are_told_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    with pytest.raises(DiptychError, match=r"vectors\.txt: no such file"):
        read_word_vectors(str(path), WORDS, 2)
    path.write_text("dog 1 2\ncat 1 two\n")
    with pytest.raises(DiptychError, match="line 2: expected a word and 2 numbers"):
        read_word_vectors(str(path), WORDS, 2)
    path.write_text("dog 1 2\n")
    with pytest.raises(DiptychError, match="vectors have 2 dimensions; word_dim is 300"):
        read_word_vectors(str(path), WORDS, 300)


def test_the_packaged_glove_knows_common_words() -> None:
    found = read_word_vectors("glove-6b-50d", [*WORDS, "puppy", "xqzzt"], 50)
    assert {1, 2, 4} <= set(found)
    assert 5 not in found
    dog, cat, puppy = (found[i] / np.linalg.norm(found[i]) for i in (1, 2, 4))
    assert dog @ puppy > 0.7
    assert dog @ cat > 0.7
