"""The field's vocabulary: built, saved, read; words and punctuation."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.vocabulary import SPECIAL, Vocabulary, split_words

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda w: w not in SPECIAL)


@settings(max_examples=40, deadline=None)
@given(st.lists(words, unique=True, max_size=20))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, chosen: list[str]) -> None:
    path = tmp_path_factory.mktemp("v") / "vocabulary.json"
    written = Vocabulary([*SPECIAL, *chosen])
    written.save(path)
    found = Vocabulary.load(path)
    assert found.words == written.words
    assert [found(word) for word in found.words] == list(range(len(found)))


@given(st.lists(st.text(st.sampled_from("ab c.'"), max_size=20), max_size=6), st.integers(1, 3))
def test_built_words_occur_often_enough(captions: list[str], at_least: int) -> None:
    vocabulary = Vocabulary.build(captions, at_least)
    every = [word for text in captions for word in split_words(text)]
    assert vocabulary.words[4:] == sorted({word for word in every if every.count(word) >= at_least})


def test_words() -> None:
    assert split_words("A dog's ball, RED!") == ["a", "dog's", "ball", "red"]
    assert split_words("A dog's ball, RED!", punctuation=True) == ["a", "dog's", "ball", ",", "red", "!"]
    assert Vocabulary([*SPECIAL, "."]).split("Stop.") == ["stop", "."]
    assert Vocabulary([*SPECIAL, "stop"]).split("Stop.") == ["stop"]


def test_unknown_words() -> None:
    assert Vocabulary([*SPECIAL, "dog"])("cat") == 3


def test_the_fields_file_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    table = {"dog": 4, "<unk>": 3, "<end>": 2, "<start>": 1, "<pad>": 0}
    path.write_text(json.dumps({"word2idx": table, "idx2word": {}, "idx": 5}))
    assert Vocabulary.load(path).words == [*SPECIAL, "dog"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"words": []}, "expected an object with 'word2idx'"),
        ({"word2idx": {"<pad>": 0, "<start>": 2}}, "word2idx: expected the numbers 0 to 1, each once"),
        ({"word2idx": {"<pad>": 0, "<start>": "1"}}, "word2idx: expected the numbers 0 to 1, each once"),
        ({"word2idx": {"<pad>": 0, "<start>": 1}}, "'<end>' is missing"),
    ],
)
def test_bad_files(tmp_path: Path, content: object, sentence: str) -> None:
    (tmp_path / "v.json").write_text(json.dumps(content))
    with pytest.raises(DiptychError, match=sentence):
        Vocabulary.load(tmp_path / "v.json")


def test_a_word_twice() -> None:
    with pytest.raises(DiptychError, match="the word 'dog' is listed twice"):
        Vocabulary([*SPECIAL, "dog", "dog"])


def test_a_vocabulary_that_knows_the_possessive_cuts_it_off() -> None:
    plain = Vocabulary([*SPECIAL, "man", "dog"])
    cut = Vocabulary([*SPECIAL, "man", "dog", "'s", "n't"])
    assert plain.split("The man's dog doesn't bark.") == ["the", "man's", "dog", "doesn't", "bark"]
    assert cut.split("The man's dog doesn't bark.") == ["the", "man", "'s", "dog", "does", "n't", "bark"]
