"""CAMP (Wang et al., ICCV 2019): the three modules that its authors released, told apart by their tensors."""

from dataclasses import replace
from typing import Literal

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.matchers.camp import released_config
from diptych.matchers.convert.checkpoint import Checkpoint, shown
from diptych.matchers.convert.plan import Plan
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import FC, Words, gru_side, linear_shape

LIMIT = 50  # tokens of a sentence, <start> and <end> included
Module = Literal["cross_attention", "gate_fusion", "gate_fusion_new"]
MODULES: dict[str, Module] = {
    "cross_attention": "cross_attention",
    "gate_fusion": "gate_fusion",
    "gate_fusion_new": "gate_fusion_new",
}
PAIR = {
    "pair.img_key_fc.": "image_side.key.",
    "pair.txt_key_fc.": "text_side.key.",
    "pair.img_query_fc.": "image_side.query.",
    "pair.txt_query_fc.": "text_side.query.",
    "pair.weighted_img_key_fc.": "image_side.message_key.",
    "pair.weighted_txt_key_fc.": "text_side.message_key.",
    "pair.weighted_img_query_fc.": "image_side.message_query.",
    "pair.weighted_txt_query_fc.": "text_side.message_query.",
    "pair.fc_1.0.": "image_side.fusion.",
    "pair.fc_2.0.": "text_side.fusion.",
    "pair.fc_out.0.": "hidden.",
    "pair.fc_out.3.": "output.",
}


def plan_camp(checkpoint: Checkpoint, settings: Settings, words: Words) -> Plan:
    """One Linear, a BiGRU, and a module of which each pair has its own run."""
    if not checkpoint.starting("pair."):
        raise DiptychError("model: the third state dictionary, of the pair side, is missing", where=checkpoint.path)
    for name in ("no_imgnorm", "no_txtnorm"):
        settings.expect(name, True)
    settings.expect("self_attention", False)
    module = _module(checkpoint, settings)
    dim, features = linear_shape(checkpoint, "image.fc.weight")
    text = gru_side(checkpoint, words, bidirectional=True, limit=LIMIT)
    fusion: Literal["add", "concat"] = "concat"
    if module != "cross_attention":
        _, width = linear_shape(checkpoint, "pair.fc_1.0.weight")
        fusion = "concat" if width == 2 * dim else "add"
    reduce = "final_reduce" if module == "gate_fusion_new" else "reduce_layer"
    heads, _ = linear_shape(checkpoint, f"pair.{reduce}_1.linear.2.weight")
    config = released_config(module, fusion, dim, FeatureConfig(feature_dim=features), text.config)
    names, unused = {**FC, **text.names, **PAIR}, {}
    for number, side in (("1", "image_side"), ("2", "text_side")):
        names[f"pair.{reduce}_{number}.linear.0."] = f"{side}.aggregation.first."
        names[f"pair.{reduce}_{number}.linear.2."] = f"{side}.aggregation.second."
        unused[f"pair.{reduce}_{number}.linear.2.bias"] = "adds the same to all items of a softmax, which it cannot see"
        checkpoint.shape(f"pair.{reduce}_{number}.linear.2.bias", 1)
    config = replace(config, heads=heads)
    return Plan(config, text.tokenizer, names, unused=unused, notes=(f"The module is `{module}`.",))


def _module(checkpoint: Checkpoint, settings: Settings) -> Module:
    """The module that the tensors are of; a setting that says otherwise is an error."""
    fused = any(map(checkpoint.starting, ("pair.fc_1.", "pair.fc_2.", "pair.fc_out.")))
    new = [name for name in checkpoint.starting("pair.") if "_query_" in name or "final_reduce" in name]
    if new and not fused:
        raise DiptychError(
            f"{shown(new[0])} is there without 'fc_1', 'fc_2' and 'fc_out': none of the modules {', '.join(MODULES)}",
            where=checkpoint.path,
        )
    held: Module = "cross_attention" if not fused else "gate_fusion_new" if new else "gate_fusion"
    said = settings.choice("measure", MODULES, held)
    if said != held:
        raise DiptychError(f"the module is said to be {said!r}, and its tensors are of {held!r}", where=checkpoint.path)
    return held
