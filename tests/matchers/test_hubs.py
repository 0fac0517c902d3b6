import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diptych.common.config import parse, to_tree
from diptych.matchers.hubs import EDGE, EXTRA, HubConfig, Hubs
from diptych.matchers.vse import VSE, VSEConfig
from tests.matchers import inputs
from tests.matchers.cases_vse import infinity

DIM = 8
CONFIG = HubConfig(prototypes=5, dim=3, temperature=0.1, share=0.7, sentence_share=0.4)


def unit(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1)


def filled(hubs: Hubs) -> Hubs:
    hubs.directions.copy_(torch.linalg.qr(torch.randn(DIM, CONFIG.dim)).Q)
    hubs.prototypes.copy_(unit(CONFIG.prototypes, DIM) @ hubs.directions)
    hubs.log_shares.copy_(torch.rand(CONFIG.prototypes).log_softmax(0))
    hubs.usual.fill_(0.05)
    return hubs


def slow_height(hubs: Hubs, vector: Tensor) -> float:
    """temperature log sum_k p_k exp(v . c_k / temperature), less what is usual."""
    total = 0.0
    for centre, log_share in zip(hubs.prototypes, hubs.log_shares, strict=True):
        nearness = sum(float(vector @ hubs.directions[:, j]) * float(centre[j]) for j in range(CONFIG.dim))
        total += math.exp(float(log_share)) * math.exp(nearness / CONFIG.temperature)
    return CONFIG.temperature * math.log(total) - float(hubs.usual)


def matcher(config: VSEConfig | None = None) -> VSE:
    torch.manual_seed(3)
    built = VSE(replace(config or infinity(), hubs=CONFIG), inputs.word_tokenizer()).eval()
    assert built.image_hubs is not None
    assert built.text_hubs is not None
    filled(built.image_hubs)
    filled(built.text_hubs)
    return built


@torch.no_grad()
def test_the_score_is_the_cosine_less_what_both_score_anyway() -> None:
    torch.manual_seed(0)
    images, texts = filled(Hubs(CONFIG, DIM)), filled(Hubs(CONFIG, DIM))
    v, t = unit(4, DIM), unit(6, DIM)
    scores = images.levelled(v, "pictures") @ texts.levelled(t, "sentences").T
    for i in range(4):
        for j in range(6):
            h, g = 0.7 * slow_height(images, v[i]), 0.4 * slow_height(texts, t[j])
            lengths = [math.sqrt(1 + EDGE**2 + (off / EDGE) ** 2) for off in (h, g)]
            expected = (float(v[i] @ t[j]) - h - g) / (lengths[0] * lengths[1])
            assert float(scores[i, j]) == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_vectors_are_of_length_one_and_none_of_the_added_numbers_is_large() -> None:
    torch.manual_seed(0)
    hubs = filled(Hubs(CONFIG, DIM))
    vectors = unit(7, DIM)
    for side in ("pictures", "sentences"):
        levelled = hubs.levelled(vectors, side)
        assert levelled.shape == (7, DIM + EXTRA)
        torch.testing.assert_close(levelled.norm(dim=1), torch.ones(7))
        assert levelled[:, DIM:].abs().max() <= max(
            EDGE / 2, float(CONFIG.share * hubs(vectors).abs().max()) / EDGE / 2
        )


@torch.no_grad()
def test_in_half_precision_it_is_computed_as_in_full() -> None:
    torch.manual_seed(0)
    hubs = filled(Hubs(CONFIG, DIM))
    vectors = unit(7, DIM)
    halves = hubs.half().levelled(vectors.half(), "pictures")
    assert halves.dtype == torch.float16
    torch.testing.assert_close(halves.float(), hubs.float().levelled(vectors, "pictures"), atol=2e-3, rtol=0)


def test_what_a_matcher_keeps_is_what_its_layout_compares() -> None:
    levelled = matcher()
    with levelled.inference():
        images, texts = inputs.kept_images(levelled), inputs.kept_texts(levelled)
        scores = levelled.score(images, texts)
    layout = levelled.layout()
    assert layout is not None
    assert images.vectors.shape[1:] == texts.vectors.shape[1:] == (1, layout.dim)
    torch.testing.assert_close(scores, images.vectors[:, 0] @ texts.vectors[:, 0].T)
    plain = infinity()
    torch.manual_seed(3)
    cosines = VSE(plain, inputs.word_tokenizer()).eval()
    cosines.load_state_dict(levelled.state_dict(), strict=False)
    with cosines.inference():
        without = cosines.score(inputs.kept_images(cosines), inputs.kept_texts(cosines))
    assert (scores - without).abs().max() > 0.01


def test_each_side_gets_its_own_share_at_its_own_place() -> None:
    levelled = matcher()
    with levelled.inference():
        images, texts = inputs.kept_images(levelled).vectors[:, 0], inputs.kept_texts(levelled).vectors[:, 0]
        scores = levelled.score(inputs.kept_images(levelled), inputs.kept_texts(levelled))
    v, t = (torch.nn.functional.normalize(side[:, :DIM], dim=-1) for side in (images, texts))
    assert levelled.image_hubs is not None
    assert levelled.text_hubs is not None
    for i in range(len(v)):
        for j in range(len(t)):
            h, g = 0.7 * slow_height(levelled.image_hubs, v[i]), 0.4 * slow_height(levelled.text_hubs, t[j])
            length = float(images[i, :DIM].norm() * texts[j, :DIM].norm())  # of the vectors' own parts
            assert float(scores[i, j]) == pytest.approx((float(v[i] @ t[j]) - h - g) * length, abs=1e-4)


def test_unlevelled_queries_score_cosines_with_nothing_taken_off() -> None:
    levelled = matcher()
    with levelled.inference():
        images, texts = inputs.kept_images(levelled).vectors, inputs.kept_texts(levelled).vectors
        scores = levelled.unlevelled(texts)[:, 0] @ images[:, 0].T
    own, other = (torch.nn.functional.normalize(side[:, 0, :DIM], dim=-1) for side in (images, texts))
    lengths = images[:, 0, :DIM].norm(dim=-1)  # of a picture's own part, which is nearly the same for all
    torch.testing.assert_close(scores, other @ own.T * lengths, atol=1e-5, rtol=1e-5)
    assert levelled.unlevelled(texts).shape == texts.shape


def test_a_score_depends_on_its_pair_alone() -> None:
    levelled = matcher()
    with levelled.inference():
        images, texts = inputs.kept_images(levelled), inputs.kept_texts(levelled)
        scores = levelled.score(images, texts)
        for i in range(len(images)):
            alone = levelled.keep_images(levelled.image_encoder(inputs.part(inputs.images(), i)))
            torch.testing.assert_close(levelled.score(alone, texts)[0], scores[i], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scores[:, 0], scores[:, 4])  # the same sentence twice


def test_shares_and_explanations_are_of_the_vector_as_it_was() -> None:
    levelled = matcher()
    with levelled.inference():
        sides = levelled.image_encoder(inputs.images()), levelled.text_encoder(inputs.texts(levelled.tokenizer))
        views = levelled.see(levelled.keep_images(sides[0]), levelled.keep_texts(sides[1]), sides)
    shares = views["region_share"].values
    torch.testing.assert_close(shares.sum(-1), torch.ones(shares.shape[:-1]))


def test_a_config_goes_to_a_tree_and_back() -> None:
    config = replace(infinity(), hubs=CONFIG)
    assert parse(VSEConfig, to_tree(config), "here") == config


@pytest.mark.parametrize(
    "wrong",
    [{"prototypes": 0}, {"dim": 0}, {"temperature": 0.0}, {"share": -0.1}, {"share": 1.5}, {"sentence_share": 2.0}],
)
def test_numbers_out_of_bounds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        HubConfig(**wrong)  # type: ignore[arg-type]


def test_other_similarities_have_no_hubs() -> None:
    with pytest.raises(ValueError, match="cosine"):
        VSEConfig(similarity="order", hubs=CONFIG)
