"""DivE (Kim et al., CVPR 2023), over regions, with words or BERT; with the mask that its weights were trained with."""

from typing import Literal

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.matchers.convert.checkpoint import Checkpoint, shown
from diptych.matchers.convert.plan import Plan
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import FC, Words, linear_shape, text_side
from diptych.matchers.dive import DivEConfig

MLP = {
    "image.mlp.fc1.": "image_encoder.mlp.fc1.",
    "image.mlp.bn.bn.": "image_encoder.mlp.bn.",
    "image.mlp.fc2.": "image_encoder.mlp.fc2.",
}
SET = {
    "residual_norm.": "global_norm.",
    "agg_block.latents": "slots",
    "agg_block.last_layer.0.": "slots_norm.",
}
LAYER = {
    "0.norm.": "attention.norm.",
    "0.norm_context.": "attention.norm_inputs.",
    "0.fn.to_q.": "attention.to_q.",
    "0.fn.to_k.": "attention.to_k.",
    "0.fn.to_v.": "attention.to_v.",
    "0.fn.to_out.0.": "attention.to_out.",
    "2.norm.": "feed_forward.norm.",
    "2.fn.net.0.": "feed_forward.fc1.",
    "2.fn.net.3.": "feed_forward.fc2.",
}
SIMILARITIES: dict[str, Literal["smooth-chamfer", "chamfer", "mil"]] = {
    "smooth_chamfer": "smooth-chamfer",
    "chamfer": "chamfer",
    "max": "mil",
}
POOLS: dict[str, Literal["whole", "max"]] = {"rnn": "whole", "cls": "whole", "max": "max"}
NOTE = (
    "`legacy_mask` is on, as these weights were trained: padding takes part in a set, so that a score depends on how "
    "long the other sentences of its batch are. `--option legacy_mask=false` converts it without."
)


def plan_dive(checkpoint: Checkpoint, settings: Settings, words: Words) -> Plan:
    """Set prediction on both sides; its layers must share their weights, as the paper's do."""
    pixels = checkpoint.starting("image.cnn.")
    if pixels:
        raise DiptychError(
            f"{shown(pixels[0])} is of a network over pixels; only models over precomputed features "
            "can be converted from here",
            where=checkpoint.path,
        )
    for name, value in {
        "img_res_pool": "max", "img_res_first_fc": True, "img_res_first_pool": False, "img_res_last_pool": False,
        "spm_img_pos_enc_type": "none", "spm_activation": "gelu", "spm_residual": True, "denominator": 2,
    }.items():  # fmt: skip
        settings.expect(name, value)
    dim, features = linear_shape(checkpoint, "image.fc.weight")
    text = text_side(checkpoint, words, bidirectional=True)
    if isinstance(text.config, GRUConfig):
        settings.expect("txt_attention_input", "wemb")
        settings.expect("spm_txt_pos_enc_type", "sine")
    else:
        settings.expect("spm_txt_pos_enc_type", "none")
    iterations = checkpoint.count("image.spm.agg_block.layers.", ".0.")
    first = "image.spm.agg_block.layers.0"
    inner, _ = linear_shape(checkpoint, f"{first}.0.fn.to_q.weight")
    _, wide = linear_shape(checkpoint, f"{first}.2.fn.net.3.weight")
    heads = int(settings.number("heads", 4))
    if inner % heads:
        raise DiptychError(f"opt.heads: {heads} heads do not divide {inner}, the rows of to_q", where=checkpoint.path)
    legacy = settings.flag("legacy_mask", True)
    config = DivEConfig(
        dim=dim,
        image=FeatureConfig(feature_dim=features, projection="residual-hidden"),
        text=text.config,
        slots=linear_shape(checkpoint, "image.spm.agg_block.latents")[0],
        iterations=iterations,
        heads=heads,
        head_dim=inner // heads,
        feed_forward=max(1, wide // dim),
        similarity=settings.choice("loss", SIMILARITIES, "smooth_chamfer"),
        alpha=settings.number("temperature", 16.0),
        text_global=settings.choice("txt_pooling", POOLS, "rnn"),
        legacy_mask=legacy,
    )
    names = {**FC, **MLP, **text.names}
    for side in ("image", "text"):
        names |= {f"{side}.spm.{theirs}": f"{side}_set.{ours}" for theirs, ours in SET.items()}
        for t in range(iterations):
            layer = f"{side}.spm.agg_block.layers.{t}."
            names |= {layer + theirs: f"{side}_set.{ours}" for theirs, ours in LAYER.items()}
    return Plan(config, text.tokenizer, names, unused=text.unused, assets=text.assets, notes=(NOTE,) if legacy else ())
