from diptych.encoders.gpo import GPOConfig
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.vse import VSEConfig
from tests.matchers.inputs import FEATURE_DIM

IMAGE = FeatureConfig(feature_dim=FEATURE_DIM)
RESIDUAL = FeatureConfig(feature_dim=FEATURE_DIM, projection="residual")
WORDS = GRUConfig(word_dim=7)
PIECES = TransformerConfig()


def infinity(text: GRUConfig | TransformerConfig = WORDS, gpo: GPOConfig | None = None) -> VSEConfig:
    return VSEConfig(dim=8, image=RESIDUAL, text=text, image_pool="gpo", text_pool="gpo", gpo=gpo or GPOConfig())


CASES = {
    "vse++": VSEConfig(dim=8, image=IMAGE, text=GRUConfig(word_dim=7, bidirectional=False)),
    "vse++-order": VSEConfig(dim=8, image=IMAGE, text=WORDS, similarity="order"),
    "vse++-order-absolute": VSEConfig(dim=8, image=IMAGE, text=WORDS, similarity="order", absolute=True),
    "vse++-strong": VSEConfig(dim=8, image=RESIDUAL, text=WORDS, text_pool="mean"),
    "vse++-strong-bert": VSEConfig(dim=8, image=RESIDUAL, text=PIECES, text_pool="whole"),
    "vse++-max": VSEConfig(dim=8, image=IMAGE, text=WORDS, image_pool="max", text_pool="max"),
    "vse-infinity": infinity(),
    "vse-infinity-bert": infinity(PIECES),
    "vse-infinity-mean-gpo": VSEConfig(dim=8, image=RESIDUAL, text=PIECES, image_pool="mean", text_pool="gpo"),
    "vse-infinity-gpo-whole": VSEConfig(dim=8, image=RESIDUAL, text=PIECES, image_pool="gpo", text_pool="whole"),
    "vse-infinity-transformer": infinity(gpo=GPOConfig(sequence="transformer")),
    "vse-infinity-per-dimension": infinity(gpo=GPOConfig(per_dimension=True)),
    "vse-infinity-features": infinity(gpo=GPOConfig(features=True)),
    "vse-infinity-all": infinity(gpo=GPOConfig(sequence="transformer", per_dimension=True, features=True)),
}
