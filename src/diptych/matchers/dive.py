"""DivE (Kim et al., CVPR 2023): sets of diverse embeddings."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.data.tokens import Tokenizer
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class DivEConfig:
    """DivE."""

    kind: Literal["dive"] = "dive"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=GRUConfig)


class DivE(Matcher):
    """DivE."""

    def __init__(self, config: DivEConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
