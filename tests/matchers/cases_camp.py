"""CAMP: the paper's model, the ablations of its Table 3 that change the model, the modules that its authors released.

"MLP + ranking loss" and "BCE w/o hardest" of Table 3 are the paper's model with another loss.
"""

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig, TransformerConfig
from diptych.matchers.camp import CAMPConfig, released_config
from tests.matchers.inputs import FEATURE_DIM

IMAGE = FeatureConfig(feature_dim=FEATURE_DIM)
WORDS = GRUConfig(word_dim=7)

PAPER = {
    "camp": CAMPConfig(dim=8, image=IMAGE, text=WORDS),
    "camp-base": CAMPConfig(
        dim=8, image=IMAGE, text=WORDS, messages="none", fusion="none", gate="none", residual=False, similarity="dot"
    ),
    "camp-without-cross-attention": CAMPConfig(dim=8, image=IMAGE, text=WORDS, messages="mean"),
    "camp-without-fusion": CAMPConfig(
        dim=8, image=IMAGE, text=WORDS, fusion="none", gate="none", residual=False, similarity="cosine"
    ),
    "camp-without-gates": CAMPConfig(dim=8, image=IMAGE, text=WORDS, gate="none"),
    "camp-without-residual": CAMPConfig(dim=8, image=IMAGE, text=WORDS, residual=False),
    "camp-without-attention-aggregation": CAMPConfig(dim=8, image=IMAGE, text=WORDS, aggregation="mean"),
    "camp-concat": CAMPConfig(dim=8, image=IMAGE, text=WORDS, fusion="concat"),
    "camp-product": CAMPConfig(dim=8, image=IMAGE, text=WORDS, fusion="product"),
    "camp-joint-embedding": CAMPConfig(dim=8, image=IMAGE, text=WORDS, similarity="cosine"),
}
RELEASED = {
    "camp-cross-attention": released_config("cross_attention", dim=8, image=IMAGE, text=WORDS),
    "camp-gate-fusion-add": released_config("gate_fusion", "add", dim=8, image=IMAGE, text=WORDS),
    "camp-gate-fusion-concat": released_config("gate_fusion", "concat", dim=8, image=IMAGE, text=WORDS),
    "camp-gate-fusion-new-add": released_config("gate_fusion_new", "add", dim=8, image=IMAGE, text=WORDS),
    "camp-gate-fusion-new-concat": released_config("gate_fusion_new", "concat", dim=8, image=IMAGE, text=WORDS),
}
# Settings that belong to no table, where other lines of code compute the same formulas.
MIXED = {
    "camp-low-dimensional": CAMPConfig(dim=8, image=IMAGE, text=WORDS, affinity_dim=3),
    "camp-normalised": CAMPConfig(dim=8, image=IMAGE, text=WORDS, normalise=True),
    "camp-scalar-gate": CAMPConfig(dim=8, image=IMAGE, text=WORDS, gate="scalar"),
    "camp-concat-without-gates": CAMPConfig(dim=8, image=IMAGE, text=WORDS, fusion="concat", gate="none"),
    "camp-product-scalar-gate": CAMPConfig(dim=8, image=IMAGE, text=WORDS, fusion="product", gate="scalar"),
    "camp-mean-messages-scalar-gate": CAMPConfig(dim=8, image=IMAGE, text=WORDS, messages="mean", gate="scalar"),
    "camp-mean-messages-concat": CAMPConfig(dim=8, image=IMAGE, text=WORDS, messages="mean", fusion="concat"),
    "camp-base-mlp": CAMPConfig(
        dim=8, image=IMAGE, text=WORDS, messages="none", fusion="none", gate="none", residual=False, joint="concat"
    ),
    "camp-base-cosine": CAMPConfig(
        dim=8, image=IMAGE, text=WORDS, messages="none", fusion="none", gate="none", residual=False, similarity="cosine"
    ),
    "camp-without-fusion-mlp": CAMPConfig(
        dim=8, image=IMAGE, text=WORDS, fusion="none", gate="none", residual=False, aggregation="mean"
    ),
}
CASES = {
    **PAPER,
    **RELEASED,
    **MIXED,
    "camp-transformer": CAMPConfig(dim=8, image=IMAGE, text=TransformerConfig(name="tiny")),
}
