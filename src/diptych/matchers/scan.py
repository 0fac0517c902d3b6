"""SCAN (Lee et al., ECCV 2018): stacked cross attention."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.data.tokens import Tokenizer
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class SCANConfig:
    """SCAN."""

    kind: Literal["scan"] = "scan"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=GRUConfig)


class SCAN(Matcher):
    """SCAN."""

    def __init__(self, config: SCANConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
