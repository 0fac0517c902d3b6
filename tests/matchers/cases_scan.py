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
    "scan-t2i-max-l2": SCANConfig(dim=8, image=IMAGE, text=WORDS, aggregation="max", affinity_norm="l2"),
    "scan-t2i-sum-softmax": SCANConfig(dim=8, image=IMAGE, text=WORDS, aggregation="sum", affinity_norm="softmax"),
    "scan-i2t-mean-softmax": SCANConfig(dim=8, image=IMAGE, text=WORDS, direction="i2t", affinity_norm="softmax"),
    "scan-i2t-max-l1": SCANConfig(
        dim=8, image=IMAGE, text=WORDS, direction="i2t", aggregation="max", affinity_norm="l1"
    ),
    "scan-t2i-lse-clipped-l1": SCANConfig(
        dim=8, image=IMAGE, text=WORDS, aggregation="lse", affinity_norm="clipped-l1"
    ),
    "scan-i2t-sum-clipped": SCANConfig(
        dim=8, image=IMAGE, text=WORDS, direction="i2t", aggregation="sum", affinity_norm="clipped"
    ),
    "scan-t2i-mean-raw": SCANConfig(dim=8, image=IMAGE, text=WORDS, affinity_norm="none"),
    "scan-t2i-mean-bert": SCANConfig(dim=8, image=IMAGE, text=PIECES),
    "scan-i2t-lse-bert": SCANConfig(dim=8, image=IMAGE, text=PIECES, direction="i2t", aggregation="lse"),
}
