"""Hubs of a trained matcher, levelled by a bank."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.hubs import Bank, HubConfig
from diptych.matchers.level import clusters
from diptych.matchers.scan import SCANConfig
from diptych.matchers.vse import VSE, VSEConfig
from diptych.training.blend import blend
from diptych.training.start import build_for, take_weights
from tests.matchers import inputs
from tests.matchers.cases_vse import infinity
from tests.training import toy

DIM = 8
EXACT = HubConfig(
    prototypes=6, dim=DIM, temperature=0.1, share=1.0, sentence_share=1.0
)  # one prototype a vector of the banks below


def unit(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1)


def matcher(seed: int = 0) -> VSE:
    torch.manual_seed(seed)
    return VSE(infinity(), inputs.word_tokenizer()).eval()


def level(plain: VSE, banks: list[Bank], hubs: HubConfig) -> VSE:
    plain.level(banks, hubs)
    return plain


def inverted_softmax(vector: Tensor, bank: Tensor) -> float:
    return 0.1 * math.log(sum(math.exp(float(vector @ other) / 0.1) for other in bank) / len(bank))


def test_with_a_prototype_for_each_vector_it_is_the_inverted_softmax() -> None:
    torch.manual_seed(1)
    bank = Bank(unit(6, DIM), unit(6, DIM))
    levelled = level(matcher(), [bank], EXACT)
    assert levelled.image_hubs is not None
    assert levelled.text_hubs is not None
    v = unit(3, DIM)
    for hubs, other, own in (
        (levelled.image_hubs, bank.sentences, bank.pictures),
        (levelled.text_hubs, bank.pictures, bank.sentences),
    ):
        usual = sum(inverted_softmax(x, other) for x in own) / len(own)
        expected = [inverted_softmax(x, other) - usual for x in v]
        torch.testing.assert_close(hubs(v), torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_a_picture_near_to_everything_comes_first_no_longer() -> None:
    torch.manual_seed(2)
    common = unit(1, DIM)
    sentences = torch.nn.functional.normalize(common + unit(200, DIM), dim=-1)
    pictures = torch.nn.functional.normalize(sentences + 2 * (unit(200, DIM) - common), dim=-1)
    pictures[0] = common[0]  # which fits no sentence best
    right = torch.arange(100, 200)

    def first(v: Tensor, t: Tensor) -> Tensor:
        return (v @ t.T).argmax(0)

    before = first(pictures, sentences)[100:]
    levelled = level(matcher(), [Bank(pictures[:100], sentences[:100])], replace(EXACT, prototypes=100))
    assert levelled.image_hubs is not None
    assert levelled.text_hubs is not None
    after = first(
        levelled.image_hubs.levelled(pictures, "pictures"), levelled.text_hubs.levelled(sentences, "sentences")
    )[100:]
    assert (before == 0).sum() > 10
    assert (after == 0).sum() < (before == 0).sum() / 4
    assert (after == right).sum() > (before == right).sum()


def test_collections_count_the_same_however_large() -> None:
    torch.manual_seed(3)
    small, large = unit(4, DIM), unit(4, DIM)
    many = large.repeat(25, 1)
    even = level(matcher(), [Bank(small, small), Bank(large, large)], replace(EXACT, prototypes=8))
    uneven = level(matcher(), [Bank(small, small), Bank(many, many)], replace(EXACT, prototypes=8))
    v = unit(5, DIM)
    assert even.image_hubs is not None
    assert uneven.image_hubs is not None
    # Equal points in one cluster or several: what they are worth together is the same where every point has its centre.
    own = torch.cat([small, large])
    expected = torch.tensor([inverted_softmax(x, own) for x in v])
    torch.testing.assert_close(even.image_hubs(v) + even.image_hubs.usual, expected, atol=1e-5, rtol=1e-5)
    height = uneven.image_hubs(v) + uneven.image_hubs.usual
    assert (height - expected).abs().max() < 0.1
    assert uneven.image_hubs.log_shares.exp()[:4].sum() == pytest.approx(0.5, abs=1e-4)


def test_to_level_again_is_to_level_once() -> None:
    torch.manual_seed(4)
    bank = Bank(unit(6, DIM), unit(6, DIM))
    once = level(matcher(), [bank], EXACT)
    assert once.image_hubs is not None
    assert once.text_hubs is not None
    seen = Bank(
        once.image_hubs.levelled(bank.pictures, "pictures"), once.text_hubs.levelled(bank.sentences, "sentences")
    )
    state = {name: value.clone() for name, value in once.state_dict().items()}
    again = level(once, [seen], EXACT)
    v = unit(3, DIM)
    assert again.image_hubs is not None
    expected = again.image_hubs(v)
    again.load_state_dict(state)
    torch.testing.assert_close(again.image_hubs(v), expected, atol=1e-5, rtol=1e-5)


def test_vectors_are_compared_in_the_directions_in_which_the_bank_varies_most() -> None:
    torch.manual_seed(9)
    plane = torch.linalg.qr(torch.randn(DIM, 3)).Q
    bank = torch.nn.functional.normalize(torch.randn(6, 3) @ plane.T + 0.001 * torch.randn(6, DIM), dim=-1)
    levelled = level(matcher(), [Bank(bank, bank)], replace(EXACT, dim=3))
    v = unit(4, DIM)
    assert levelled.image_hubs is not None
    expected = torch.tensor([inverted_softmax(x, bank) for x in v])
    torch.testing.assert_close(levelled.image_hubs(v) + levelled.image_hubs.usual, expected, atol=0.01, rtol=0)


def test_clusters_are_means_of_what_is_nearest_to_them() -> None:
    torch.manual_seed(5)
    groups = 10 * torch.eye(4)[:3]
    points = torch.cat([groups[k] + 0.1 * torch.randn(5 + k, 4) for k in range(3)])
    best = None
    for seed in range(20):  # a start may put two centres into one group
        centres, shares = clusters(points, 3, torch.Generator().manual_seed(seed))
        assert shares.sum() == pytest.approx(1)
        if sorted((shares * len(points)).round().int().tolist()) == [5, 6, 7]:
            best = centres
    assert best is not None
    expected = [points[:5].mean(0), points[5:11].mean(0), points[11:].mean(0)]
    for mean in expected:
        assert (best - mean).norm(dim=1).min() < 1e-5


def test_a_saved_one_scores_the_same(tmp_path: Path) -> None:
    torch.manual_seed(6)
    levelled = level(matcher(), [Bank(unit(6, DIM), unit(6, DIM))], EXACT)
    levelled.save_pretrained(tmp_path / "model")
    loaded = Matcher.from_pretrained(tmp_path / "model")
    for one in (levelled, loaded):
        with one.inference():
            scores = one.score(inputs.kept_images(one), inputs.kept_texts(one))
        if one is levelled:
            expected = scores
    assert torch.equal(scores, expected)


def test_a_run_begins_with_its_weights_and_without_its_hubs(tmp_path: Path) -> None:
    torch.manual_seed(7)
    recipe, splits = toy.recipe(), toy.splits()
    trained = build_for(recipe, splits)
    dim = recipe.model.dim
    trained.level([Bank(unit(6, dim), unit(6, dim))], EXACT)
    trained.save_pretrained(tmp_path / "model")
    new = build_for(recipe, splits)
    take_weights(new, str(tmp_path / "model"))
    assert isinstance(new, VSE)
    assert new.image_hubs is None
    theirs = trained.state_dict()
    for name, value in new.state_dict().items():
        assert torch.equal(value, theirs[name])


def test_a_recipe_with_hubs_is_refused() -> None:
    model = toy.recipe().model
    assert isinstance(model, VSEConfig)
    with pytest.raises(DiptychError, match="diptych level"):
        build_for(toy.recipe(model=replace(model, hubs=EXACT)), toy.splits())


def test_models_are_blended_before_they_are_levelled(tmp_path: Path) -> None:
    torch.manual_seed(8)
    level(matcher(), [Bank(unit(6, DIM), unit(6, DIM))], EXACT).save_pretrained(tmp_path / "model")
    with pytest.raises(DiptychError, match="then level"):
        blend([str(tmp_path / "model")] * 2, [1, 1])


def test_what_cannot_be_levelled_is_told() -> None:
    bank = Bank(unit(6, DIM), unit(6, DIM))
    scan = build_matcher(SCANConfig(dim=DIM, image=FeatureConfig(feature_dim=6)), inputs.word_tokenizer())
    with pytest.raises(DiptychError, match="SCAN"):
        scan.level([bank])
    order = VSE(VSEConfig(dim=DIM, image=FeatureConfig(feature_dim=6), similarity="order"), inputs.word_tokenizer())
    with pytest.raises(DiptychError, match="'order'"):
        order.level([bank])
    with pytest.raises(DiptychError, match="at least one bank"):
        level(matcher(), [], EXACT)
    with pytest.raises(DiptychError, match="each of 2 collections"):
        level(matcher(), [bank, bank], replace(EXACT, prototypes=1))
    with pytest.raises(DiptychError, match="none of them empty"):
        level(matcher(), [Bank(unit(0, DIM), unit(6, DIM))], EXACT)
