"""Sentences to token numbers: whole words from a vocabulary, or pieces from a Hugging Face tokenizer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from diptych.common.hub import from_hub
from diptych.data.batches import Tokens, pad_tokens
from diptych.data.tokenizer_file import FilePieceTokenizer, has_file_pieces
from diptych.data.vocabulary import Vocabulary


class Tokenizer(Protocol):
    """What a matcher needs of a tokenizer."""

    @property
    def size(self) -> int:
        """How many different tokens there are."""

    @property
    def mask_id(self) -> int:
        """The token that stands for a hidden word."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are never dropped, hidden or shown (start, end, padding)."""

    def ids(self, sentence: str) -> list[int]:
        """The token numbers of one sentence."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token number stands for, for people."""

    def pad(self, sentences: Sequence[Sequence[int]]) -> Tokens:
        """A padded batch of token numbers."""

    def save(self, folder: Path) -> None:
        """Write what `load_tokenizer` needs."""


class WordTokenizer:
    """<start> words <end>, numbered by a vocabulary, at most `limit` tokens."""

    def __init__(self, vocabulary: Vocabulary, limit: int | None = None) -> None:
        self.vocabulary = vocabulary
        self.limit = limit

    @property
    def size(self) -> int:
        """Number of words."""
        return len(self.vocabulary)

    @property
    def mask_id(self) -> int:
        """<mask> where the vocabulary has it, else <unk>."""
        return self.vocabulary("<mask>")

    @property
    def special_ids(self) -> frozenset[int]:
        """<pad>, <start> and <end>."""
        return frozenset(self.vocabulary(s) for s in ("<pad>", "<start>", "<end>"))

    def ids(self, sentence: str) -> list[int]:
        """<start>, the words, <end>; of more than the limit the last words are left out."""
        v = self.vocabulary
        words = v.split(sentence)
        if self.limit is not None:
            words = words[: max(0, self.limit - 2)]
        return [v("<start>"), *(v(w) for w in words), v("<end>")][: self.limit]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The words."""
        return [self.vocabulary.words[i] for i in ids]

    def pad(self, sentences: Sequence[Sequence[int]]) -> Tokens:
        """Padded with <pad>."""
        return pad_tokens(sentences, self.vocabulary("<pad>"))

    def save(self, folder: Path) -> None:
        """vocabulary.json."""
        self.vocabulary.save(folder / "vocabulary.json")


class PieceTokenizer:
    """A Hugging Face tokenizer, at most `limit` pieces including the special ones."""

    def __init__(self, tokenizer: Any, limit: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.limit = limit

    @classmethod
    def load(cls, source: str | Path, limit: int | None = None) -> "PieceTokenizer":
        """From a folder or a hub name."""
        with from_hub(source, "a tokenizer"):
            from transformers import AutoTokenizer

            made = cls(AutoTokenizer.from_pretrained(str(source)), limit)
            made.ids("a")  # one whose files do not belong together fails here, and not at somebody's sentence
            return made

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.tokenizer)

    @property
    def mask_id(self) -> int:
        """[MASK], or the unknown piece where there is none."""
        mask = self.tokenizer.mask_token_id
        return int(mask if mask is not None else self.tokenizer.unk_token_id)

    @property
    def special_ids(self) -> frozenset[int]:
        """[CLS], [SEP], [PAD] and their like."""
        return frozenset(self.tokenizer.all_special_ids)

    def ids(self, sentence: str) -> list[int]:
        """The pieces with the special ones around them."""
        encoded = self.tokenizer(sentence, truncation=self.limit is not None, max_length=self.limit)
        return [int(i) for i in encoded["input_ids"]]

    def spans(self, sentence: str) -> list[tuple[int | None, tuple[int, int]]]:
        """Of each piece the word that it belongs to, none for special ones, and its place; of fast tokenizers only."""
        encoded = self.tokenizer(
            sentence, truncation=self.limit is not None, max_length=self.limit, return_offsets_mapping=True
        )
        return list(zip(encoded.word_ids(), encoded["offset_mapping"], strict=True))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as the tokenizer writes them."""
        return list(self.tokenizer.convert_ids_to_tokens(list(ids)))

    def pad(self, sentences: Sequence[Sequence[int]]) -> Tokens:
        """Padded with the tokenizer's own padding piece."""
        return pad_tokens(sentences, int(self.tokenizer.pad_token_id or 0))

    def save(self, folder: Path) -> None:
        """The tokenizer's own files, in tokenizer/."""
        self.tokenizer.save_pretrained(str(folder / "tokenizer"))


def load_pieces(source: str | Path, limit: int | None = None) -> Tokenizer:
    """The tokenizer of a folder or a hub name; quickly where its tokenizer.json says everything."""
    if has_file_pieces(Path(source)):
        return FilePieceTokenizer(Path(source), limit)
    return PieceTokenizer.load(source, limit)


def load_tokenizer(folder: Path, limit: int | None = None) -> Tokenizer:
    """The tokenizer that was saved in a matcher's folder."""
    if (folder / "tokenizer").is_dir():
        return load_pieces(folder / "tokenizer", limit)
    return WordTokenizer(Vocabulary.load(folder / "vocabulary.json"), limit)


def encode(tokenizer: Tokenizer, sentences: Sequence[str]) -> Tokens:
    """Sentences as one padded batch."""
    return tokenizer.pad([tokenizer.ids(s) for s in sentences])
