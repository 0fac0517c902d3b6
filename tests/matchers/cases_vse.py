from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.vse import VSEConfig
from tests.matchers.inputs import FEATURE_DIM

IMAGE = FeatureConfig(feature_dim=FEATURE_DIM)
RESIDUAL = FeatureConfig(feature_dim=FEATURE_DIM, projection="residual")
WORDS = GRUConfig(word_dim=7)

CASES = {
    "vse++": VSEConfig(dim=8, image=IMAGE, text=GRUConfig(word_dim=7, bidirectional=False)),
    "vse++-order": VSEConfig(dim=8, image=IMAGE, text=WORDS, similarity="order"),
    "vse++-strong": VSEConfig(dim=8, image=RESIDUAL, text=WORDS, text_pool="mean"),
    "vse++-max": VSEConfig(dim=8, image=IMAGE, text=WORDS, image_pool="max", text_pool="max"),
}
