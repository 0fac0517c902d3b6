"""VSE++ and VSE∞: one vector a side, compared by cosine or by order.

VSE++ (Faghri et al., BMVC 2018): the mean region and the last GRU state, l2-normalised.
VSE∞ (Chen et al., CVPR 2021): both sides pooled by the generalized pooling operator (encoders/gpo.py).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Tokens
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.images import FeatureConfig, ImageConfig, build_image_encoder
from diptych.encoders.pooling import max_pool, mean_pool
from diptych.encoders.texts import GRUConfig, TextConfig, build_text_encoder
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept


@dataclass(frozen=True)
class VSEConfig:
    """One vector a side.

    image_pool, text_pool: how local vectors become one; `whole` is the encoder's own: the last GRU state, or [CLS]
    similarity: `cosine`, or `order`: -‖max(0, s - v)‖
    """

    kind: Literal["vse"] = "vse"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=lambda: GRUConfig(bidirectional=False))
    image_pool: Literal["mean", "max"] = "mean"
    text_pool: Literal["whole", "mean", "max"] = "whole"
    similarity: Literal["cosine", "order"] = "cosine"


class VSE(Matcher):
    """Visual-semantic embedding."""

    config: VSEConfig

    def __init__(self, config: VSEConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
        words = tokenizer.pieces(range(tokenizer.size))
        self.image_encoder = build_image_encoder(config.image, config.dim, assets)
        self.text_encoder = build_text_encoder(config.text, config.dim, words, assets)

    def keep_images(self, batch: ImageBatch) -> Kept:
        """(n, 1, d)."""
        return self._one_vector(self.image_encoder(batch), self.config.image_pool)

    def keep_texts(self, batch: Tokens) -> Kept:
        """(n, 1, d)."""
        return self._one_vector(self.text_encoder(batch), self.config.text_pool)

    def _one_vector(self, encoded: Encoded, pool: str) -> Kept:
        if pool == "whole":
            if encoded.whole is None:
                raise DiptychError("text_pool: 'whole' needs an encoder that has a vector for the whole sentence")
            pooled = encoded.whole
        else:
            pooled = (mean_pool if pool == "mean" else max_pool)(encoded.vectors, encoded.mask)
        vectors = l2(pooled).unsqueeze(1)
        return Kept(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device))

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """Cosine v.s, or -‖max(0, s - v)‖ (n, m)."""
        v, s = images.vectors[:, 0], texts.vectors[:, 0]
        if self.config.similarity == "order":
            return -(s.unsqueeze(0) - v.unsqueeze(1)).clamp(min=0).norm(dim=-1)
        return v @ s.T

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        v, s = images.vectors[:, 0], texts.vectors[:, 0]
        if self.config.similarity == "order":
            return -(s - v).clamp(min=0).norm(dim=-1)
        return (v * s).sum(-1)

    def pair_floats(self, regions: int, words: int) -> int:
        """The order similarity forms every difference."""
        return self.config.dim + 1 if self.config.similarity == "order" else 1
