"""Tokens and the words that people see: pieces of a word are one word again, special tokens are left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diptych.data.tokenizer_file import FilePieceTokenizer
from diptych.data.tokens import PieceTokenizer, Tokenizer, WordTokenizer


@dataclass(frozen=True)
class Word:
    """One word of a sentence, and the positions of its tokens."""

    text: str
    tokens: tuple[int, ...]


def sentence_words(tokenizer: Tokenizer, sentence: str) -> list[Word]:
    """The words of a sentence in order, as they are written; what the tokenizer cuts off is not there."""
    ids = tokenizer.ids(sentence)
    if isinstance(tokenizer, WordTokenizer):
        # By position, since a word that is not in the vocabulary must still be shown as what it is.
        written = tokenizer.vocabulary.split(sentence)
        return [Word(text, (place,)) for place, text in enumerate(written, 1) if place < len(ids) - 1]
    if isinstance(tokenizer, FilePieceTokenizer) or (
        isinstance(tokenizer, PieceTokenizer) and tokenizer.tokenizer.is_fast
    ):
        return _by_offsets(tokenizer.spans(sentence), sentence)
    shown = [place for place, number in enumerate(ids) if number not in tokenizer.special_ids]
    return _by_marks(tokenizer.pieces(ids), shown)


def _by_offsets(spans: Sequence[tuple[int | None, tuple[int, int]]], sentence: str) -> list[Word]:
    """The tokenizer itself knows which pieces make a word, and where it stands in the sentence."""
    groups: dict[int, list[int]] = {}
    for place, (number, _) in enumerate(spans):
        if number is not None:
            groups.setdefault(number, []).append(place)
    return [
        Word(sentence[spans[places[0]][1][0] : spans[places[-1]][1][1]].strip(), tuple(places))
        for places in groups.values()
    ]


def _by_marks(pieces: Sequence[str], shown: Sequence[int]) -> list[Word]:
    """Pieces that go on with a word begin with ##; where any piece begins with ▁ or Ġ, those that do not go on."""
    marks = ("▁", "Ġ")
    starts = any(pieces[place].startswith(marks) for place in shown)
    words: list[tuple[str, list[int]]] = []
    for place in shown:
        piece = pieces[place]
        goes_on = piece.startswith("##") or (starts and not piece.startswith(marks))
        text = piece.removeprefix("##").lstrip("".join(marks))
        if goes_on and words and words[-1][1][-1] == place - 1:
            words[-1] = (words[-1][0] + text, [*words[-1][1], place])
        else:
            words.append((text, [place]))
    return [Word(text, tuple(places)) for text, places in words]


def sum_words(array: np.ndarray, words: Sequence[Word], axis: int = -1) -> np.ndarray:
    """Tokens to words where values are shares: a word has what its pieces have together. The axis keeps its place."""
    moved = np.moveaxis(array, axis, 0)
    summed = np.zeros((len(words), *moved.shape[1:]), dtype=np.float32)
    for row, word in enumerate(words):
        summed[row] = moved[list(word.tokens)].sum(0)
    return np.moveaxis(summed, 0, axis)


def mean_words(array: np.ndarray, words: Sequence[Word], axis: int = -1) -> np.ndarray:
    """Tokens to words where each token has a value of its own: the mean over a word's pieces."""
    counts = np.array([len(word.tokens) for word in words], dtype=np.float32)
    summed = np.moveaxis(sum_words(array, words, axis), axis, -1)
    return np.moveaxis(summed / counts, -1, axis)
