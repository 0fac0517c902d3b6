"""VSE++ (Faghri et al., BMVC 2018) and VSE∞ (Chen et al., CVPR 2021), over regions or over a grid."""

from dataclasses import replace

from diptych.common.errors import DiptychError
from diptych.encoders.images import FeatureConfig
from diptych.matchers.convert.checkpoint import Checkpoint, shown
from diptych.matchers.convert.grid import grid_side
from diptych.matchers.convert.plan import Plan
from diptych.matchers.convert.settings import Settings
from diptych.matchers.convert.sides import FC, Words, gpo_config, gru_side, linear_shape, text_side
from diptych.matchers.vse import VSEConfig

GPOOL = {"text.gpool.": "text_gpo."}
REGIONS = {
    **FC,
    "image.mlp.layers.0.": "image_encoder.mlp.fc1.",
    "image.mlp.bns.0.": "image_encoder.mlp.bn.",
    "image.mlp.layers.1.": "image_encoder.mlp.fc2.",
    "image.gpool.": "image_gpo.",
}
REGIONS_UNUSED = {"image.mlp.bns.1.": "made by the authors' MLP and never used"}


def plan_vsepp(checkpoint: Checkpoint, settings: Settings, words: Words) -> Plan:
    """One Linear on a whole feature, one GRU; cosine or order."""
    _no_network(checkpoint, "image.cnn.")
    settings.expect("no_imgnorm", False)
    dim, features = linear_shape(checkpoint, "image.fc.weight")
    text = gru_side(checkpoint, words, bidirectional=False)
    similarity = settings.choice("measure", {"cosine": "cosine", "order": "order"}, "cosine")
    config = VSEConfig(
        dim=dim,
        image=FeatureConfig(feature_dim=features),
        text=text.config,
        similarity="order" if similarity == "order" else "cosine",
        absolute=bool(settings.get("use_abs", False)),
    )
    note = "A picture is one feature vector: of several local ones, their mean is taken."
    return Plan(config, text.tokenizer, {**FC, **text.names}, notes=(note,))


def plan_vse_infinity(checkpoint: Checkpoint, settings: Settings, words: Words) -> Plan:
    """GPO on both sides; BERT or a GRU; regions, or the grid of a network that is trained along."""
    for name in ("no_imgnorm", "no_txtnorm"):
        settings.expect(name, False)
    text = text_side(checkpoint, words)
    gpo = gpo_config(checkpoint, "text.gpool")
    config = VSEConfig(text=text.config, image_pool="gpo", text_pool="gpo", gpo=gpo)
    names, unused = {**text.names, **GPOOL}, dict(text.unused)
    if checkpoint.starting("image.backbone."):
        grid = grid_side(checkpoint, settings)
        config = replace(config, dim=grid.dim, image=grid.config, drop_cells=True)
        return Plan(
            config,
            text.tokenizer,
            {**names, **grid.names},
            copies=grid.copies,
            unused={**unused, **grid.unused},
            edits=grid.edits,
            assets={**text.assets, **grid.assets},
            notes=grid.notes,
        )
    dim, features = linear_shape(checkpoint, "image.fc.weight")
    config = replace(config, dim=dim, image=FeatureConfig(feature_dim=features, projection="residual"))
    unused |= REGIONS_UNUSED
    return Plan(config, text.tokenizer, {**names, **REGIONS}, unused=unused, assets=text.assets)


def _no_network(checkpoint: Checkpoint, prefix: str) -> None:
    pixels = checkpoint.starting(prefix)
    if pixels:
        raise DiptychError(
            f"{shown(pixels[0])} is of a network over pixels; only models over precomputed features "
            "can be converted from here",
            where=checkpoint.path,
        )
