"""MMCA (Wei et al., CVPR 2020): multi-modality cross attention."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from diptych.data.tokens import Tokenizer
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Matcher


@dataclass(frozen=True)
class MMCAConfig:
    """MMCA."""

    kind: Literal["mmca"] = "mmca"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=GRUConfig)


class MMCA(Matcher):
    """MMCA."""

    def __init__(self, config: MMCAConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
