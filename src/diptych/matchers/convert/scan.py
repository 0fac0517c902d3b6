"""SCAN (Lee et al., ECCV 2018): all that is learned are the encoders; how they meet is in the settings."""

from typing import Literal

from diptych.encoders.images import FeatureConfig
from diptych.matchers.convert.checkpoint import Checkpoint
from diptych.matchers.convert.plan import Plan
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import FC, Words, gru_side, linear_shape
from diptych.matchers.scan import LSE_LAMBDAS, SOFTMAX_LAMBDAS, SCANConfig

DIRECTIONS: dict[str, Literal["t2i", "i2t"]] = {"t2i": "t2i", "i2t": "i2t"}
AGGREGATIONS: dict[str, Literal["mean", "lse", "max", "sum"]] = {
    "Mean": "mean", "LogSumExp": "lse", "Max": "max", "Sum": "sum",
}  # fmt: skip
NORMS: dict[str, Literal["clipped-l2", "l2", "clipped-l1", "l1", "clipped", "softmax", "none"]] = {
    "clipped_l2norm": "clipped-l2", "l2norm": "l2", "clipped_l1norm": "clipped-l1", "l1norm": "l1",
    "clipped": "clipped", "softmax": "softmax", "no_norm": "none",
}  # fmt: skip


def plan_scan(checkpoint: Checkpoint, settings: Settings, words: Words) -> Plan:
    """One Linear, a GRU of one or both directions."""
    for name in ("no_imgnorm", "no_txtnorm"):
        settings.expect(name, False)
    dim, features = linear_shape(checkpoint, "image.fc.weight")
    text = gru_side(checkpoint, words)
    direction = settings.choice("cross_attn", DIRECTIONS)
    aggregation = settings.choice("agg_func", AGGREGATIONS)
    config = SCANConfig(
        dim=dim,
        image=FeatureConfig(feature_dim=features),
        text=text.config,
        direction=direction,
        aggregation=aggregation,
        affinity_norm=settings.choice("raw_feature_norm", NORMS, "clipped_l2norm"),
        softmax_lambda=settings.number("lambda_softmax", SOFTMAX_LAMBDAS[direction]),
        lse_lambda=settings.number("lambda_lse", LSE_LAMBDAS[direction]) if aggregation == "lse" else None,
    )
    return Plan(config, text.tokenizer, {**FC, **text.names})
