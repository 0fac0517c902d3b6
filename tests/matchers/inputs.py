"""Odd inputs on purpose: one region, one word, ragged lengths, a sentence twice."""

import torch

from diptych.data.batches import LocalFeatures, Tokens
from diptych.data.tokens import Tokenizer, WordTokenizer, encode
from diptych.data.vocabulary import Vocabulary

FEATURE_DIM = 6
SENTENCES = [
    "a red dog",
    "dog",
    "a small cat sits left of the big blue boat",
    "two dogs",
    "a red dog",
    "the boat and the cat",
]
REGIONS = [3, 1, 5, 4, 2]


def word_tokenizer() -> WordTokenizer:
    return WordTokenizer(Vocabulary.build(SENTENCES, at_least=1))


def images(extra: int = 0, seed: int = 0) -> LocalFeatures:
    """Ragged local features; `extra` columns of padding hold garbage that must not matter."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(REGIONS) + extra
    vectors = torch.full((len(REGIONS), longest, FEATURE_DIM), 77.0)
    mask = torch.zeros(len(REGIONS), longest, dtype=torch.bool)
    for i, count in enumerate(REGIONS):
        vectors[i, :count] = torch.randn(count, FEATURE_DIM, generator=generator)
        mask[i, :count] = True
    return LocalFeatures(vectors, mask)


def texts(tokenizer: Tokenizer, extra: int = 0) -> Tokens:
    """The sentences; `extra` columns of padding hold a real word's number that must not matter."""
    tokens = encode(tokenizer, SENTENCES)
    if not extra:
        return tokens
    ids = torch.cat([tokens.ids, torch.full((len(tokens), extra), tokenizer.size - 1)], 1)
    mask = torch.cat([tokens.mask, torch.zeros(len(tokens), extra, dtype=torch.bool)], 1)
    return Tokens(ids, mask)
