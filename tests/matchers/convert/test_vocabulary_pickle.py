"""Words come out of a pickled Vocabulary; nothing else does, and nothing runs."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.data.vocabulary import SPECIAL
from diptych.matchers.convert.vocabulary_pickle import Reader, read_vocabulary

WORDS = [*SPECIAL, "dog", "café", "don't", "犬", "."]


class Vocabulary:
    """What the authors pickled."""

    def __init__(self, words: list[str]) -> None:
        self.word2idx = {word: i for i, word in enumerate(words)}
        self.idx2word = dict(enumerate(words))
        self.idx = len(words)


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol: int, tmp_path: Path) -> None:
    path = write(tmp_path / "vocab.pkl", pickle.dumps(Vocabulary(WORDS), protocol))
    assert read_vocabulary(path).words == WORDS


@given(st.lists(st.text(max_size=20), max_size=40, unique=True), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_reads_what_pickle_wrote(words: list[str], protocol: int) -> None:
    content = Reader().read(pickle.dumps(Vocabulary(words), protocol))
    assert content.state == vars(Vocabulary(words))


def test_python_2(tmp_path: Path) -> None:
    """Byte strings, and a class of the old style as its second protocol wrote it."""

    def text(word: str) -> bytes:
        raw = word.encode()
        return b"U" + bytes([len(raw)]) + raw

    table = b"}(" + b"".join(text(w) + b"K" + bytes([i]) for i, w in enumerate(WORDS)) + b"u"
    state = b"}(" + text("word2idx") + table + text("idx") + b"K" + bytes([len(WORDS)]) + b"u"
    old_style = b"\x80\x02(cvocab\nVocabulary\no" + state + b"b."
    assert read_vocabulary(write(tmp_path / "old.pkl", old_style)).words == WORDS
    lowest = b"ccopy_reg\n_reconstructor\n(cvocab\nVocabulary\nc__builtin__\nobject\nNtR" + state + b"b."
    assert read_vocabulary(write(tmp_path / "lowest.pkl", lowest)).words == WORDS
    long = b"\x80\x02cvocab\nVocabulary\n)\x81}" + text("word2idx") + table
    long += text("idx2word") + b"T" + struct.pack("<i", 300) + b"x" * 300 + b"0" + b"}ssb."
    with pytest.raises(DiptychError, match="POP"):  # no pickler writes it
        read_vocabulary(write(tmp_path / "long.pkl", long))


def test_plain_dictionaries_and_json(tmp_path: Path) -> None:
    table = {word: i for i, word in enumerate(WORDS)}
    assert read_vocabulary(write(tmp_path / "a.pkl", pickle.dumps(table))).words == WORDS
    assert read_vocabulary(write(tmp_path / "b.pkl", pickle.dumps({"word2idx": table}))).words == WORDS
    assert read_vocabulary(write(tmp_path / "c.pkl", pickle.dumps({"idx2word": WORDS}))).words == WORDS
    read_vocabulary(tmp_path / "a.pkl").save(tmp_path / "d.json")
    assert read_vocabulary(tmp_path / "d.json").words == WORDS


def test_mask_is_kept(tmp_path: Path) -> None:
    words = [*SPECIAL, "<mask>", "dog"]
    assert read_vocabulary(write(tmp_path / "v.pkl", pickle.dumps(Vocabulary(words)))).words == words


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("where", ["alone", "attribute", "word", "list"])
def test_a_call_is_refused_and_does_not_run(where: str, protocol: int, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil: Any = Evil(ran)
    if where != "alone":
        holder = Vocabulary(WORDS)
        if where == "attribute":
            holder.extra = evil  # type: ignore[attr-defined]
        elif where == "word":
            holder.idx2word[0] = evil
        else:
            holder.list = [1, evil]  # type: ignore[attr-defined]
        evil = holder
    path = write(tmp_path / "vocab.pkl", pickle.dumps(evil, protocol))
    with pytest.raises(DiptychError, match=r"vocab\.pkl.*mkdir.*JSON"):
        read_vocabulary(path)
    assert not ran.exists()


@pytest.mark.parametrize(
    "opcodes",
    [
        b"cvocab\nVocabulary\n(S'touch'\ntR.",  # the class called with something
        b"cvocab\nVocabulary\n)\x81(S'state'\nlb.",  # a state that is no dictionary
        b"}(S'word2idx'\nK\x01uK\x05b.",  # a state for what is no object
        b"Pname\n.",  # a persistent name
        b"\x82\x01.",  # an extension
        b"(cos\nsystem\nS'true'\no.",
        b"(S'true'\nios\nsystem\n.",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"ccopyreg\n__newobj__\n(cos\nVocabulary\ncos\nsystem\ntR.",
        b"}]K\x01s.",  # a list as a key
        b"u.", b"a.", b"R.", b"h\x00.", b".", b"", b"nonsense", b"\x80\x04\x95",
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(opcodes: bytes, tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"v\.pkl"):
        read_vocabulary(write(tmp_path / "v.pkl", opcodes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["a"], "expected a Vocabulary or a dictionary"),
        ({}, "word2idx"),
        ({"word2idx": {"a": 0, "b": 2}}, "0 to 1"),
        ({"word2idx": {"a": 0, "b": 0}}, "0 to 1"),
        ({"word2idx": {0: "a"}}, "0 to 0"),
        ({"word2idx": {"a": 0}}, "'<pad>' is missing"),
    ],
)
def test_a_wrong_table_is_named(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=rf"v\.pkl: .*{message}"):
        read_vocabulary(write(tmp_path / "v.pkl", pickle.dumps(content)))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match=r"none\.pkl"):
        read_vocabulary(tmp_path / "none.pkl")
