import pytest
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.scenes import near_miss_set
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.evaluation.near_misses import near_miss_figures
from diptych.matchers.kept import Kept
from diptych.matchers.vse import VSE, VSEConfig

PAIRS = near_miss_set(12, seed=3)


class Sure(VSE):
    """Scores a pair by whether it was told that it fits."""

    right = True

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        # Rows come as (scene, sentence), (scene, wrong), (other, sentence); the first is asked for first.
        self.calls = getattr(self, "calls", 0) + 1
        return torch.full((len(images),), float((self.calls == 1) == self.right))


def matcher() -> Sure:
    tokenizer = WordTokenizer(Vocabulary.build([p.sentence.text for p in PAIRS], at_least=1))
    return Sure(VSEConfig(dim=4, image=FeatureConfig(feature_dim=438)), tokenizer).eval()


def test_always_right_and_always_wrong() -> None:
    good = near_miss_figures(matcher(), PAIRS)
    assert set(good.values()) == {100.0}
    assert {"near-miss/all", "near-miss/sentence", "near-miss/picture", "near-miss/colour"} <= good.keys()
    bad = matcher()
    bad.right = False
    assert set(near_miss_figures(bad, PAIRS).values()) == {0.0}


def test_a_tie_counts_as_wrong() -> None:
    blind = matcher()
    for parameter in blind.parameters():
        torch.nn.init.zeros_(parameter)
    figures = near_miss_figures(_plain(blind), PAIRS)
    assert figures["near-miss/all"] == 0.0


def _plain(sure: Sure) -> VSE:
    plain = VSE(sure.config, sure.tokenizer).eval()
    plain.load_state_dict(sure.state_dict())
    return plain


def test_no_pairs_is_said() -> None:
    with pytest.raises(DiptychError, match="at least one"):
        near_miss_figures(matcher(), [])
