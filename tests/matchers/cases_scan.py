"""Configurations of SCAN that the common tests run on."""

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.scan import SCANConfig
from tests.matchers.inputs import FEATURE_DIM

IMAGE = FeatureConfig(feature_dim=FEATURE_DIM)
WORDS = GRUConfig(word_dim=7)
PIECES = TransformerConfig(name="tiny")

CASES = {
    "scan-t2i-mean": SCANConfig(dim=8, image=IMAGE, text=WORDS),
    "scan-t2i-lse": SCANConfig(dim=8, image=IMAGE, text=WORDS, aggregation="lse"),
    "scan-i2t-mean": SCANConfig(dim=8, image=IMAGE, text=WORDS, direction="i2t"),
    "scan-i2t-lse": SCANConfig(dim=8, image=IMAGE, text=WORDS, direction="i2t", aggregation="lse"),
    "scan-i2t-lse-coco": SCANConfig(
        dim=8, image=IMAGE, text=WORDS, direction="i2t", aggregation="lse", softmax_lambda=4.0, lse_lambda=20.0
    ),
    "scan-t2i-mean-bert": SCANConfig(dim=8, image=IMAGE, text=PIECES),
    "scan-i2t-lse-bert": SCANConfig(dim=8, image=IMAGE, text=PIECES, direction="i2t", aggregation="lse"),
}
