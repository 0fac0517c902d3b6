"""`similarity` and `rank` of any matcher, with pairs that would take far more memory at once than they may."""

from typing import Any

import pytest
import torch

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.bounded.matrix import bounded_matrix
from diptych.matchers.bounded.memory import ENOUGH
from diptych.matchers.camp import CAMPConfig
from diptych.matchers.catalog import build_matcher
from diptych.matchers.kept import Kept
from tests.matchers import inputs

CONFIG = CAMPConfig(dim=8, image=FeatureConfig(feature_dim=inputs.FEATURE_DIM), text=GRUConfig(word_dim=7))
PICTURES, SENTENCES = 239, 795


@pytest.fixture(scope="module")
def camp() -> Matcher:
    torch.manual_seed(3)
    return build_matcher(CONFIG, inputs.word_tokenizer()).eval()


@pytest.fixture(scope="module")
def sides(camp: Matcher) -> tuple[Kept, Kept]:
    """Ragged pictures and sentences, in no order of length."""
    with camp.inference():
        images, texts = inputs.kept_images(camp), inputs.kept_texts(camp)
    return images[[i % len(images) for i in range(PICTURES)]], texts[[i % len(texts) for i in range(SENTENCES)]]


class Counted:
    """The matcher's own `score`, and how many bytes of working memory each call of it took by its own count."""

    def __init__(self, matcher: Matcher, patch: pytest.MonkeyPatch) -> None:
        self.bytes: list[int] = []
        self.gradients: list[bool] = []
        score = matcher.score

        def counted(images: Any, texts: Any) -> torch.Tensor:
            floats = matcher.pair_floats(images.mask.shape[1], texts.mask.shape[1])
            self.bytes.append(4 * len(images) * len(texts) * floats)
            self.gradients.append(torch.is_grad_enabled())
            return score(images, texts)

        patch.setattr(matcher, "score", counted)


def test_similarity_takes_bounded_memory_and_gives_what_one_call_gives(
    camp: Matcher, sides: tuple[Kept, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, texts = sides
    at_once = 4 * PICTURES * SENTENCES * camp.pair_floats(images.mask.shape[1], texts.mask.shape[1])
    assert at_once > 8 * ENOUGH["cpu"]
    with camp.inference():
        columns = range(0, SENTENCES, 53)
        whole = torch.cat([camp.score(images, texts[start : start + 53]) for start in columns], 1)
    counted = Counted(camp, monkeypatch)
    scores = camp.similarity(images, texts)
    assert max(counted.bytes) <= ENOUGH["cpu"]
    assert sum(counted.bytes) < at_once  # little padding is computed
    assert not any(counted.gradients)
    assert not scores.requires_grad
    torch.testing.assert_close(scores, whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["sentence", "picture"])
def test_rank_takes_bounded_memory(
    camp: Matcher, sides: tuple[Kept, Kept], monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    images, texts = sides
    many = type(images).cat([images] * 60) if kind == "sentence" else type(texts).cat([texts] * 20)
    query = texts[2] if kind == "sentence" else images[2]
    assert 4 * len(many) * camp.pair_floats(images.mask.shape[1], texts.mask.shape[1]) > ENOUGH["cpu"]
    counted = Counted(camp, monkeypatch)
    ranked = camp.rank(query, many, top=3, kind=kind)
    assert max(counted.bytes) <= ENOUGH["cpu"]
    assert len(counted.bytes) > 1
    assert not any(counted.gradients)
    expected = camp.similarity(*((many, query) if kind == "sentence" else (query, many))).flatten()
    assert [score for _, score in ranked] == expected.sort(descending=True).values[:3].tolist()


@pytest.mark.parametrize("memory", [1, 20_000])
def test_with_memory_for_a_pair_at_a_time_scores_are_the_same(
    camp: Matcher, sides: tuple[Kept, Kept], monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    images, texts = sides[0][:7], sides[1][:9]
    whole = camp.similarity(images, texts)
    counted = Counted(camp, monkeypatch)
    torch.testing.assert_close(bounded_matrix(camp, images, texts, memory), whole, atol=1e-6, rtol=1e-5)
    pair = 4 * camp.pair_floats(images.mask.shape[1], texts.mask.shape[1])
    assert max(counted.bytes) <= max(memory // 2, pair)


def test_a_matcher_in_training_keeps_its_mode_and_is_asked_without_gradient(
    camp: Matcher, sides: tuple[Kept, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(camp, monkeypatch)
    camp.train()
    try:
        assert not camp.similarity(sides[0][:2], sides[1][:2]).requires_grad
        assert camp.training
    finally:
        camp.eval()
    assert counted.gradients == [False] * len(counted.gradients) != []
