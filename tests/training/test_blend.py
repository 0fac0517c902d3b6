"""One matcher from several."""

from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import build_matcher
from diptych.matchers.vse import VSEConfig
from diptych.training.blend import blend

CONFIG = VSEConfig(dim=6, image=FeatureConfig(feature_dim=5, projection="residual"), text=GRUConfig(word_dim=4))


def saved(folder: Path, seed: int, dim: int = 6, words: str = "a man and a dog") -> str:
    torch.manual_seed(seed)
    tokenizer = WordTokenizer(Vocabulary.build([words], at_least=1))
    matcher = build_matcher(VSEConfig(dim=dim, image=CONFIG.image, text=CONFIG.text), tokenizer)
    # Statistics of a normalisation are weights, too, and its count of batches is none.
    matcher.image_encoder.mlp.bn.running_mean.normal_()  # type: ignore[union-attr, operator]
    matcher.save_pretrained(folder)
    return str(folder)


def test_every_weight_is_the_weighted_mean(tmp_path: Path) -> None:
    names = [saved(tmp_path / str(seed), seed) for seed in range(3)]
    mixed = blend(names, [1.0, 2.0, 5.0]).state_dict()
    one, two, three = (Matcher.from_pretrained(name).state_dict() for name in names)
    assert any("running_mean" in name for name in mixed)
    for name, value in mixed.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, (one[name] + 2 * two[name] + 5 * three[name]) / 8)
        else:
            assert torch.equal(value, one[name])


def test_a_model_alone_stays_as_it_is(tmp_path: Path) -> None:
    name = saved(tmp_path / "one", 0)
    for key, value in blend([name], [0.3]).state_dict().items():
        torch.testing.assert_close(value, Matcher.from_pretrained(name).state_dict()[key])


@pytest.mark.parametrize(("dim", "words", "what"), [(7, "a man and a dog", "configuration"), (6, "cats run", "words")])
def test_models_of_another_make_are_refused(tmp_path: Path, dim: int, words: str, what: str) -> None:
    one, other = saved(tmp_path / "one", 0), saved(tmp_path / "other", 1, dim, words)
    with pytest.raises(DiptychError, match=f"has (an)?other {what}"):
        blend([one, other], [1, 1])


@pytest.mark.parametrize("shares", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_shares_must_fit(tmp_path: Path, shares: list[float]) -> None:
    one = saved(tmp_path / "one", 0)
    with pytest.raises(DiptychError, match="shares: expected"):
        blend([one, one], shares)
