"""A matcher whose attention is known: a drawn scene's regions and words that name things by number."""

from dataclasses import replace

import torch

from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.base import Matcher, Sides, View
from diptych.matchers.catalog import build_matcher, build_tokenizer
from diptych.matchers.kept import Kept
from diptych.matchers.scan import SCAN, SCANConfig
from tests.matchers import inputs
from tests.matchers.cases import CASES


def case(name: str, tiny_bert: str) -> Matcher:
    """One of the cases of every matcher."""
    config = CASES[name]
    torch.manual_seed(3)
    if isinstance(config.text, TransformerConfig):
        config = replace(config, text=replace(config.text, name=tiny_bert))
        return build_matcher(config, build_tokenizer(config.text, None)).eval()
    return build_matcher(config, inputs.word_tokenizer()).eval()


class Knowing(SCAN):
    """Attends as it was told: `weights` (words with <start> and <end>, regions)."""

    weights: torch.Tensor

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        return {"word_to_region": View(self.weights[None, None], ("words", "regions"))}


def knowing(sentences: list[str], feature_dim: int) -> Knowing:
    vocabulary = Vocabulary.build(sentences, at_least=1)
    config = SCANConfig(dim=4, image=FeatureConfig(feature_dim=feature_dim), text=GRUConfig(word_dim=3))
    return Knowing(config, WordTokenizer(vocabulary)).eval()
