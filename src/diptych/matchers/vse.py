"""VSE++ and VSE∞: one vector a side, compared by cosine or by order.

VSE++ (Faghri et al., BMVC 2018): the mean region and the last GRU state, l2-normalised.
VSE∞ (Chen et al., CVPR 2021): both sides pooled by the generalized pooling operator (encoders/gpo.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.common.fused import inner_products
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.gpo import GPO, GPOConfig
from diptych.encoders.images import FeatureConfig, ImageConfig, PixelConfig
from diptych.encoders.pooling import max_contributions, max_pool, mean_contributions, mean_pool
from diptych.encoders.size_augmentation import drop_cells
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.hubs import EXTRA, Bank, HubConfig, Hubs
from diptych.matchers.kept import Kept
from diptych.matchers.level import find_hubs
from diptych.matchers.view import of_pictures, of_sentences


@dataclass(frozen=True)
class VSEConfig:
    """One vector a side.

    image_pool, text_pool: how local vectors become one; `whole` is the encoder's own: the last GRU state, or [CLS]
    gpo: how the coefficients of the `gpo` pools are generated; each side learns its own
    similarity: `cosine`, or `order`: -‖max(0, s - v)‖
    absolute: both vectors are made of absolute values, as VSE++ does for `order`
    drop_cells: size augmentation of grids, while training: some cells of each picture are left out of the pooling
    hubs: what is taken off scores of pictures and sentences that are near to everything; found after training, by
        `diptych level`
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
    hubs: HubConfig | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "dim", low=1)
        if "gpo" not in (self.image_pool, self.text_pool) and self.gpo != GPOConfig():
            raise ValueError("gpo: set, but neither image_pool nor text_pool is 'gpo'")
        if self.drop_cells and not isinstance(self.image, PixelConfig):
            raise ValueError("drop_cells: is for images of kind 'pixels'; of features, training drops regions")
        if self.hubs is not None and self.similarity != "cosine":
            raise ValueError("hubs: are levelled where similarity is 'cosine'")


class VSE(Matcher):
    """Visual-semantic embedding."""

    title = "VSE"
    config: VSEConfig

    def __init__(self, config: VSEConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.image_gpo = GPO(config.gpo, config.dim) if config.image_pool == "gpo" else None
        self.text_gpo = GPO(config.gpo, config.dim) if config.text_pool == "gpo" else None
        self.image_hubs = None if config.hubs is None else Hubs(config.hubs, config.dim)
        self.text_hubs = None if config.hubs is None else Hubs(config.hubs, config.dim)

    def keep_images(self, encoded: Encoded) -> Kept:
        """(n, 1, d), with hubs levelled (n, 1, d + EXTRA)."""
        if self.training and self.config.drop_cells:
            encoded = replace(encoded, mask=drop_cells(encoded.mask))
        vectors = _one_vector(encoded, self.config.image_pool, self.image_gpo, self.config.absolute)
        return _kept(vectors if self.image_hubs is None else self.image_hubs.levelled(vectors, "pictures"))

    def keep_texts(self, encoded: Encoded) -> Kept:
        """(n, 1, d), with hubs levelled (n, 1, d + EXTRA)."""
        vectors = _one_vector(encoded, self.config.text_pool, self.text_gpo, self.config.absolute)
        return _kept(vectors if self.text_hubs is None else self.text_hubs.levelled(vectors, "sentences"))

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """Cosine v.s, or -‖max(0, s - v)‖ (n, m)."""
        v, s = images.vectors[:, 0], texts.vectors[:, 0]
        if self.config.similarity == "order":
            return -(s.unsqueeze(0) - v.unsqueeze(1)).clamp(min=0).norm(dim=-1)
        return inner_products(v, s)

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        v, s = images.vectors[:, 0], texts.vectors[:, 0]
        if self.config.similarity == "order":
            return -(s - v).clamp(min=0).norm(dim=-1)
        return (v * s).sum(-1)

    def pair_floats(self, regions: int, words: int) -> int:
        """The order similarity forms every difference."""
        return self.config.dim + 1 if self.config.similarity == "order" else 1

    def layout(self) -> Layout | None:
        """One vector an item; the order similarity is no comparison that a store can make."""
        extra = 0 if self.config.hubs is None else EXTRA
        return Layout(self.config.dim + extra) if self.config.similarity == "cosine" else None

    def unlevelled(self, vectors: Tensor) -> Tensor:
        """Without the numbers that hubs add, but as many."""
        if self.config.hubs is None:
            return vectors
        own = vectors[..., : self.config.dim]
        return torch.cat([l2(own), torch.zeros_like(vectors[..., self.config.dim :])], -1)

    @property
    def can_be_levelled(self) -> bool:
        """The order similarity is no inner product."""
        return self.config.similarity == "cosine"

    def level(self, banks: Sequence[Bank], hubs: HubConfig | None = None, seed: int = 0) -> None:
        """Take off what this bank's pictures and sentences score with anything; where it was done before, anew."""
        if not self.can_be_levelled:
            raise DiptychError(f"hubs are levelled where similarity is 'cosine'; it is {self.config.similarity!r}")
        images, texts = find_hubs(banks, hubs or HubConfig(), self.config.dim, seed)
        self.image_hubs, self.text_hubs = images.to(self.device), texts.to(self.device)
        self.config = replace(self.config, hubs=images.config)

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """region_share, word_share: the part of the pooled vector that each region or word supplies, summing to 1.

        Of the pool `whole` there is none: one state from the start, of which no word's share can be told.
        """
        if encoded is None:
            return {}
        shares = of_pictures(_shares(encoded[0], self.config.image_pool, self.image_gpo), len(texts))
        views = {"region_share": View(shares, ("regions",), "sum")}
        if self.config.text_pool != "whole":
            shares = of_sentences(_shares(encoded[1], self.config.text_pool, self.text_gpo), len(images))
            views["word_share"] = View(shares, ("words",), "sum")
        return views

    def pools(self) -> dict[str, GPO]:
        """GPO of each side that is pooled by it."""
        sides = {"pictures": self.image_gpo, "sentences": self.text_gpo}
        return {side: gpo for side, gpo in sides.items() if gpo is not None}


def _one_vector(encoded: Encoded, pool: str, gpo: GPO | None, absolute: bool) -> Tensor:
    """Local vectors to one (n, d)."""
    if gpo is not None:
        pooled = gpo(encoded.vectors, encoded.mask)
    elif pool == "whole":
        assert encoded.whole is not None  # text encoders always have it
        pooled = encoded.whole
    else:
        pooled = (mean_pool if pool == "mean" else max_pool)(encoded.vectors, encoded.mask)
    return l2(pooled.abs() if absolute else pooled)


def _kept(vectors: Tensor) -> Kept:
    """(n, d) -> one vector an item."""
    return Kept(vectors.unsqueeze(1), torch.ones((len(vectors), 1), dtype=torch.bool, device=vectors.device))


def _shares(encoded: Encoded, pool: str, gpo: GPO | None) -> Tensor:
    """The share of each item's pooled vector that every local vector supplies: (n, k)."""
    if gpo is not None:
        return gpo.contributions(encoded.vectors, encoded.mask)
    return mean_contributions(encoded.mask) if pool == "mean" else max_contributions(encoded.vectors, encoded.mask)
