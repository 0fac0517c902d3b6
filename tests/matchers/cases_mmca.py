"""Configurations of MMCA that the common tests run on; not `convolve_pads`, whose scores depend on the padding."""

from dataclasses import replace

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.mmca import MMCAConfig
from tests.matchers.inputs import FEATURE_DIM

IMAGE = FeatureConfig(feature_dim=FEATURE_DIM)
MMCA = MMCAConfig(dim=8, image=IMAGE, text=TransformerConfig(frozen=True, limit=32), heads=2, filters=5, alpha=0.2)
WORDS = replace(MMCA, text=GRUConfig(word_dim=7))

CASES = {
    "mmca": MMCA,
    "mmca-gru": WORDS,
    "mmca-alpha-0": replace(MMCA, alpha=0.0),
    "mmca-alpha-0-gru": replace(WORDS, alpha=0.0),
    "mmca-alpha-0-shared": replace(MMCA, alpha=0.0, convolutions="shared"),
    "mmca-alpha-0.8": replace(WORDS, alpha=0.8),
    "mmca-keep": replace(MMCA, dim=16, text_projection="keep"),
    "mmca-keep-shared": replace(MMCA, dim=16, text_projection="keep", convolutions="shared"),
    "mmca-layer-norm": replace(WORDS, normalisation="layer-norm"),
    "mmca-scale-dim": replace(WORDS, scale="dim"),
    "mmca-shared": replace(MMCA, convolutions="shared"),
    "mmca-shared-gru": replace(WORDS, convolutions="shared"),
    "mmca-self-attended": replace(WORDS, cross_input="self-attended"),
    "mmca-normalised": replace(MMCA, normalise=True),
    "mmca-normalised-gru": replace(WORDS, normalise=True, filters=6),
    "mmca-limit-4": replace(MMCA, text=TransformerConfig(frozen=True, limit=4)),
    "mmca-fine-tuned": replace(MMCA, text=TransformerConfig(limit=32)),
    "mmca-one-head": replace(WORDS, heads=1),
}
