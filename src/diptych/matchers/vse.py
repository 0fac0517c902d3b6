"""VSE++ and VSE∞: one vector a side, compared by cosine or by order.

VSE++ (Faghri et al., BMVC 2018): the mean region and the last GRU state, l2-normalised.
VSE∞ (Chen et al., CVPR 2021): both sides pooled by the generalized pooling operator (encoders/gpo.py).
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, Tokens
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.gpo import GPO, GPOConfig
from diptych.encoders.images import FeatureConfig, ImageConfig, PixelConfig, build_image_encoder
from diptych.encoders.pooling import max_contributions, max_pool, mean_contributions, mean_pool
from diptych.encoders.size_augmentation import drop_cells
from diptych.encoders.texts import GRUConfig, TextConfig, build_text_encoder
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept


@dataclass(frozen=True)
class VSEConfig:
    """One vector a side.

    image_pool, text_pool: how local vectors become one; `whole` is the encoder's own: the last GRU state, or [CLS]
    gpo: how the coefficients of the `gpo` pools are generated; each side learns its own
    similarity: `cosine`, or `order`: -‖max(0, s - v)‖
    absolute: both vectors are made of absolute values, as VSE++ does for `order`
    drop_cells: size augmentation of grids, while training: some cells of each picture are left out of the pooling
    """

    kind: Literal["vse"] = "vse"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=lambda: GRUConfig(bidirectional=False))
    image_pool: Literal["mean", "max", "gpo"] = "mean"
    text_pool: Literal["whole", "mean", "max", "gpo"] = "whole"
    gpo: GPOConfig = field(default_factory=GPOConfig)
    similarity: Literal["cosine", "order"] = "cosine"
    absolute: bool = False
    drop_cells: bool = False

    def __post_init__(self) -> None:
        if "gpo" not in (self.image_pool, self.text_pool) and self.gpo != GPOConfig():
            raise ValueError("gpo: set, but neither image_pool nor text_pool is 'gpo'")
        if self.drop_cells and not isinstance(self.image, PixelConfig):
            raise ValueError("drop_cells: is for images of kind 'pixels'; of features, training drops regions")


class VSE(Matcher):
    """Visual-semantic embedding."""

    config: VSEConfig

    def __init__(self, config: VSEConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer)
        words = tokenizer.pieces(range(tokenizer.size))
        self.image_encoder = build_image_encoder(config.image, config.dim, assets)
        self.text_encoder = build_text_encoder(config.text, config.dim, words, assets)
        self.image_gpo = GPO(config.gpo, config.dim) if config.image_pool == "gpo" else None
        self.text_gpo = GPO(config.gpo, config.dim) if config.text_pool == "gpo" else None

    def keep_images(self, batch: ImageBatch) -> Kept:
        """(n, 1, d)."""
        encoded = self.image_encoder(batch)
        if self.training and self.config.drop_cells:
            encoded = replace(encoded, mask=drop_cells(encoded.mask))
        return _one_vector(encoded, self.config.image_pool, self.image_gpo, self.config.absolute)

    def keep_texts(self, batch: Tokens) -> Kept:
        """(n, 1, d)."""
        return _one_vector(self.text_encoder(batch), self.config.text_pool, self.text_gpo, self.config.absolute)

    def image_contributions(self, batch: ImageBatch) -> Tensor:
        """The share of each picture's vector that every region or cell supplies: (n, k), summing to 1."""
        return _contributions(self.image_encoder(batch), self.config.image_pool, self.image_gpo)

    def text_contributions(self, batch: Tokens) -> Tensor:
        """The share of each sentence's vector that every word supplies: (n, k), summing to 1."""
        return _contributions(self.text_encoder(batch), self.config.text_pool, self.text_gpo)

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


def _one_vector(encoded: Encoded, pool: str, gpo: GPO | None, absolute: bool) -> Kept:
    if gpo is not None:
        pooled = gpo(encoded.vectors, encoded.mask)
    elif pool == "whole":
        assert encoded.whole is not None  # text encoders always have it
        pooled = encoded.whole
    else:
        pooled = (mean_pool if pool == "mean" else max_pool)(encoded.vectors, encoded.mask)
    vectors = l2(pooled.abs() if absolute else pooled).unsqueeze(1)
    return Kept(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool, device=vectors.device))


def _contributions(encoded: Encoded, pool: str, gpo: GPO | None) -> Tensor:
    if gpo is not None:
        return gpo.contributions(encoded.vectors, encoded.mask)
    if pool == "whole":
        raise DiptychError("text_pool: 'whole' is one vector from the start; no word's share of it can be told")
    return mean_contributions(encoded.mask) if pool == "mean" else max_contributions(encoded.vectors, encoded.mask)
