from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from diptych.encoders.texts import TransformerConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher, build_tokenizer
from diptych.matchers.kept import Kept
from tests.matchers import inputs
from tests.matchers.cases import CASES


@pytest.fixture(scope="session", params=sorted(CASES))
def matcher(request: pytest.FixtureRequest, build: Callable[[str], Matcher]) -> Matcher:
    """Each configuration of every matcher in turn."""
    return build(request.param)


@pytest.fixture(scope="session")
def build(tiny_bert: str) -> Callable[[str], Matcher]:
    """A matcher by the name of its case."""

    def make(name: str) -> Matcher:
        config = CASES[name]
        if isinstance(config.text, TransformerConfig):
            config = replace(config, text=replace(config.text, name=tiny_bert))
            tokenizer = build_tokenizer(config.text, None)
        else:
            tokenizer = inputs.word_tokenizer()
        torch.manual_seed(3)
        return build_matcher(config, tokenizer).eval()

    return make


@pytest.fixture(scope="session")
def sides(matcher: Matcher) -> tuple[Kept, Kept]:
    """Seven ragged pictures and nine ragged sentences with some padding that none needs."""
    with matcher.inference():
        images = inputs.kept_images(matcher, extra=2)[[0, 1, 2, 3, 4, 2, 1]]
        texts = inputs.kept_texts(matcher, extra=3)[[0, 1, 2, 3, 4, 5, 2, 0, 1]]
    return images, texts


@pytest.fixture(scope="session")
def whole(matcher: Matcher, sides: tuple[Kept, Kept]) -> torch.Tensor:
    """All scores in one call."""
    with matcher.inference():
        return matcher.score(*sides).clone()
