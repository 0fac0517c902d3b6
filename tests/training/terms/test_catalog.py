"""Terms with any matcher: weighted and added, or one sentence that says what is missing."""

import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.matchers.catalog import build_matcher
from diptych.matchers.dive import DivEKept
from diptych.matchers.kept import Kept
from diptych.training.terms.catalog import TERMS, weighted_terms
from tests.matchers import inputs
from tests.matchers.cases import CASES
from tests.training.terms.sides import CLOSE, side
from tests.training.terms.test_diversity import slow_diversity
from tests.training.terms.test_mmd import slow_mmd


def kept_by(name: str) -> tuple[Kept, Kept]:
    """Both sides of a batch, as a matcher keeps them while it is trained."""
    torch.manual_seed(3)
    matcher = build_matcher(CASES[name], inputs.word_tokenizer())
    return matcher(inputs.images(), inputs.texts(matcher.tokenizer))


def total(weights: dict[str, float], images: Kept, texts: Kept, matcher: str) -> Tensor:
    values = weighted_terms(weights, images, texts, matcher)
    assert list(values) == list(weights)
    return torch.stack(list(values.values())).sum()


def test_terms_are_weighted_and_added() -> None:
    images, texts = side([3, 3]), side([3, 2, 3], seed=1)
    slow = 0.5 * slow_mmd(images, texts) - 2 * slow_diversity(images, texts)
    value = total({"mmd": 0.5, "diversity": -2.0}, images, texts, "toy")
    torch.testing.assert_close(value, slow, **CLOSE)
    assert value.shape == ()


@pytest.mark.parametrize("name", ["vse++", "scan-i2t-mean", "camp", "camp-base", "mmca-gru", "dive"])
def test_mmd_is_for_any_matcher(name: str) -> None:
    images, texts = kept_by(name)
    value = total({"mmd": 1.0}, images, texts, name)
    torch.testing.assert_close(value, slow_mmd(images, texts), **CLOSE)
    for gradient in torch.autograd.grad(value, (images.vectors, texts.vectors)):
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0


def test_diversity_sees_dives_slots_before_the_global_feature() -> None:
    images, texts = kept_by("dive")
    assert isinstance(images, DivEKept)
    assert isinstance(texts, DivEKept)
    value = total({"diversity": 1.0}, images, texts, "dive")
    torch.testing.assert_close(value, slow_diversity(images, texts), **CLOSE)


def test_padding_of_what_is_kept_is_no_element() -> None:
    images, texts = kept_by("dive")
    for name in TERMS:
        value = total({name: 1.0}, images, texts, "dive")
        padded = total({name: 1.0}, images.resize(5), texts.resize(4), "dive")
        torch.testing.assert_close(padded, value, **CLOSE)


def test_a_term_that_needs_what_a_matcher_does_not_keep_names_both() -> None:
    images, texts = kept_by("vse++")
    with pytest.raises(DiptychError, match=r"^training\.terms: 'diversity' needs 'slots', which 'vse' does not keep$"):
        weighted_terms({"mmd": 0.1, "diversity": 0.1}, images, texts, "vse")
    with pytest.raises(DiptychError, match="'diversity' needs 'slots'"):
        weighted_terms({"diversity": 0.1}, side([2]), texts, "vse")
