"""Odd inputs on purpose: one region, one word, ragged lengths, a sentence twice."""

from dataclasses import fields
from typing import TypeVar

import torch

from diptych.data.batches import ImageBatch, LocalFeatures, Pixels, Tokens
from diptych.data.tokens import Tokenizer, WordTokenizer, encode
from diptych.data.vocabulary import Vocabulary
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept

T = TypeVar("T")
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


def kept_images(matcher: Matcher, extra: int = 0) -> Kept:
    """What a matcher keeps of the local features, or of pictures where it takes those."""
    return matcher.keep_images(matcher.image_encoder(images_for(matcher, extra)))


def kept_texts(matcher: Matcher, extra: int = 0) -> Kept:
    """What a matcher keeps of the sentences."""
    return matcher.keep_texts(matcher.text_encoder(texts(matcher.tokenizer, extra)))


def images_for(matcher: Matcher, extra: int = 0) -> ImageBatch:
    """The local features, or as many pictures, of the size that the matcher takes."""
    if matcher.takes_features:
        return images(extra)
    generator = torch.Generator().manual_seed(0)
    side = matcher.extractor().size
    return Pixels(torch.randint(256, (len(REGIONS), side, side, 3), generator=generator).to(torch.uint8))


def part(batch: T, i: int) -> T:
    """One item of a batch."""
    tensors = {f.name: getattr(batch, f.name)[i : i + 1] for f in fields(batch)}  # type: ignore[arg-type]
    return type(batch)(**tensors)
