"""CAMP (Wang et al., ICCV 2019): cross-modal adaptive message passing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.data.tokens import Tokenizer
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class CAMPConfig:
    """CAMP."""

    kind: Literal["camp"] = "camp"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=GRUConfig)


class CAMP(Matcher):
    """CAMP."""

    def __init__(self, config: CAMPConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
