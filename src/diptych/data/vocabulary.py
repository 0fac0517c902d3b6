"""The field's word vocabulary: <pad> 0, <start> 1, <end> 2, <unk> 3, then words seen often enough."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json

SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]", re.UNICODE)
_CLITIC = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_PIECE = re.compile(r"n't|'(?:s|re|ve|ll|d|m)\b|\w+(?:['’]\w+)*|[^\w\s]", re.UNICODE)
_PUNCTUATION = re.compile(r"[^\w]+", re.UNICODE)


def split_words(sentence: str, punctuation: bool = False) -> list[str]:
    """Lower-cased words of a sentence, with or without punctuation marks as words of their own."""
    return [w for w in _WORD.findall(sentence.lower()) if punctuation or not _PUNCTUATION.fullmatch(w)]


class Vocabulary:
    """Words and their numbers."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = list(words)
        self.index = {word: i for i, word in enumerate(self.words)}
        if len(self.index) != len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DiptychError(f"vocabulary: the word {twice!r} is listed twice")
        missing = [s for s in SPECIAL if s not in self.index]
        if missing:
            raise DiptychError(f"vocabulary: {missing[0]!r} is missing")

    def __len__(self) -> int:
        return len(self.words)

    def split(self, sentence: str) -> list[str]:
        """The words of a sentence as this vocabulary has them.

        Published vocabularies that know the full stop count punctuation, and those that know "'s" cut it off its word.
        """
        punctuation = "." in self.index
        if "'s" not in self.index:
            return split_words(sentence, punctuation)
        pieces = _PIECE.findall(_CLITIC.sub(r" \1", sentence.lower().replace("’", "'")))
        return [p for p in pieces if punctuation or not _PUNCTUATION.fullmatch(p)]

    def __call__(self, word: str) -> int:
        """The number of a word, or of <unk>."""
        return self.index.get(word, self.index["<unk>"])

    @classmethod
    def build(cls, sentences: Iterable[str], at_least: int = 4) -> "Vocabulary":
        """All words that occur at least `at_least` times, in alphabetical order after the special ones."""
        counts = Counter(word for sentence in sentences for word in split_words(sentence))
        kept = sorted(word for word, count in counts.items() if count >= at_least and word not in SPECIAL)
        return cls([*SPECIAL, *kept])

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read the field's JSON: {"word2idx": {word: number}, "idx2word": {...}, "idx": count}."""
        data = read_json(path)
        table = data.get("word2idx") if isinstance(data, dict) else None
        if not isinstance(table, dict):
            raise DiptychError("expected an object with 'word2idx'", where=path)
        by_number = {number: word for word, number in table.items() if type(number) is int}
        if sorted(by_number) != list(range(len(table))):
            raise DiptychError(f"word2idx: expected the numbers 0 to {len(table) - 1}, each once", where=path)
        return cls(by_number[i] for i in range(len(table)))

    def save(self, path: Path) -> None:
        """Write the field's JSON."""
        words = dict(enumerate(self.words))
        write_json(path, {"word2idx": self.index, "idx2word": words, "idx": len(self)})
