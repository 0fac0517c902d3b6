"""Every loss, listed once: a new one adds its config to the union."""

from diptych.training.losses.base import Loss
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.losses.sigmoid import SigmoidConfig

LossConfig = HingeConfig | BCEConfig | InfoNCEConfig | SigmoidConfig


def build_loss(config: LossConfig) -> Loss:
    """The loss that a recipe describes."""
    return config.build()
