"""Configurations of DivE that the common tests run on. `legacy_mask` is not here: its scores depend on the padding."""

from dataclasses import replace

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.dive import DivEConfig
from tests.matchers.inputs import FEATURE_DIM

DIVE = DivEConfig(
    dim=8,
    image=FeatureConfig(feature_dim=FEATURE_DIM, projection="residual-hidden"),
    text=GRUConfig(word_dim=7),
    slots=3,
    iterations=2,
    heads=2,
    head_dim=5,
    feed_forward=2,
)
BERT = TransformerConfig()

CASES = {
    "dive": DIVE,
    "dive-chamfer": replace(DIVE, similarity="chamfer"),
    "dive-mil": replace(DIVE, similarity="mil"),
    "dive-mp": replace(DIVE, similarity="mp"),
    "dive-alpha-4": replace(DIVE, alpha=4.0),
    "dive-random-slots": replace(DIVE, initial_slots="random"),
    "dive-gru-update": replace(DIVE, update="gru"),
    "dive-no-global": replace(DIVE, global_feature=False),
    "dive-plain-slot-attention": replace(DIVE, initial_slots="random", update="gru", global_feature=False),
    "dive-two-slots-max": replace(DIVE, slots=2, text_global="max"),
    "dive-bert-cls": replace(DIVE, text=BERT),
    "dive-bert-max": replace(DIVE, text=BERT, text_global="max"),
    "dive-bert-frozen-no-global": replace(DIVE, text=replace(BERT, frozen=True), global_feature=False),
}
