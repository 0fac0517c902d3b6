"""Every loss, listed once: a new one adds its config to the union."""

from diptych.training.losses.base import Loss
from diptych.training.losses.bce import BCEConfig
from diptych.training.losses.hinge import HingeConfig
from diptych.training.losses.info_nce import InfoNCEConfig
from diptych.training.losses.sigmoid import SigmoidConfig

LossConfig = HingeConfig | BCEConfig | InfoNCEConfig | SigmoidConfig


def build_loss(config: LossConfig) -> Loss:
    """The loss that a recipe describes.

    >>> loss = build_loss(HingeConfig(margin=0.2))
    >>> loss(torch.eye(3), torch.arange(3), torch.eye(3, dtype=torch.bool))  # all right by the margin
    tensor(0.)
    """
    return config.build()
