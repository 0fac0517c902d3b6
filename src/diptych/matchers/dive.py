"""DivE (Kim et al., CVPR 2023): a set of K diverse embeddings a side, compared by smooth-Chamfer similarity."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds, check_share
from diptych.common.fused import fused_dtype, fused_dtype_on
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.pooling import max_pool
from diptych.encoders.slots import PredictedSet, SetPrediction
from diptych.encoders.texts import GRUConfig, GRUEncoder, TextConfig
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.kept import Kept, kept
from diptych.matchers.set_similarity import (
    all_cosines,
    chamfer,
    circular_variance,
    mil,
    mp,
    mp_logit,
    pair_cosines,
    smooth_chamfer,
)
from diptych.matchers.view import of_pictures, of_sentences

FUSED_SLOTS = (2, 4, 8, 16)  # sets that fill a kernel's tiles
SHARPEST = 40.0  # the alpha up to which a kernel's sums of exponentials stay within float32


@dataclass(frozen=True)
class DivEConfig:
    """A set of embeddings a side.

    slots: K, the elements of a set; iterations: T, with shared weights
    heads, head_dim: of the slot attention (8 of 256 with ResNeXt and BERT); feed_forward: its width over dim
    similarity: of two sets; alpha: how sharp smooth-Chamfer is; `mp` learns its own a and b
    initial_slots, update, global_feature: the three changes to slot attention (supplement B.3); the paper's come first
    text_global: the sentence's global feature: `whole` is the last GRU state or [CLS], `max` the largest of the locals
    legacy_mask: as the published weights were trained: pads take part in a set, and scores depend on the padding
    """

    kind: Literal["dive"] = "dive"
    dim: int = 1024
    image: ImageConfig = field(default_factory=lambda: FeatureConfig(projection="residual-hidden"))
    text: TextConfig = field(default_factory=GRUConfig)
    slots: int = 4
    iterations: int = 4
    heads: int = 4
    head_dim: int = 512
    feed_forward: int = 4
    dropout: float = 0.1
    similarity: Literal["smooth-chamfer", "chamfer", "mil", "mp"] = "smooth-chamfer"
    alpha: float = 16.0
    initial_slots: Literal["learned", "random"] = "learned"
    update: Literal["residual", "gru"] = "residual"
    global_feature: bool = True
    text_global: Literal["whole", "max"] = "whole"
    legacy_mask: bool = False

    def __post_init__(self) -> None:
        check_bounds(self, "dim", "slots", "iterations", "heads", "head_dim", "feed_forward", low=1)
        check_bounds(self, "alpha", above=0)
        check_share(self, "dropout")


@dataclass(frozen=True)
class DivEKept(Kept):
    """A set of each item.

    vectors: (n, K, d), unit vectors
    slots: (n, K, d), the slots before the global feature, which the diversity term sees
    """

    slots: Tensor = kept(1)


class DivE(Matcher):
    """Set of diverse embeddings. The set modules, `image_set` and `text_set`, are trained at a lower rate."""

    title = "DivE"
    config: DivEConfig

    def __init__(self, config: DivEConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.image_set = self._set_prediction(config.dim, position=False)
        if isinstance(config.text, GRUConfig):
            # The locals of a GRU's sentence are its word embeddings, which know no order: their keys get a position.
            self.text_set = self._set_prediction(config.text.word_dim, position=True)
        else:
            self.text_set = self._set_prediction(config.dim, position=False)
        if isinstance(self.text_encoder, GRUEncoder) and not config.global_feature:
            self.text_encoder.rnn.requires_grad_(False)  # only the global feature sees it
        if config.similarity == "mp":
            self.mp_a = nn.Parameter(torch.ones(()))
            self.mp_b = nn.Parameter(torch.zeros(()))

    def _set_prediction(self, input_dim: int, position: bool) -> SetPrediction:
        c = self.config
        return SetPrediction(
            c.dim,
            input_dim,
            slots=c.slots,
            iterations=c.iterations,
            heads=c.heads,
            head_dim=c.head_dim,
            feed_forward=c.feed_forward,
            dropout=c.dropout,
            initial_slots=c.initial_slots,
            update=c.update,
            global_feature=c.global_feature,
            position=position,
            legacy_mask=c.legacy_mask,
        )

    def keep_images(self, encoded: Encoded) -> DivEKept:
        """(n, K, d)."""
        return _keep(self._image_set(encoded))

    def keep_texts(self, encoded: Encoded) -> DivEKept:
        """(n, K, d)."""
        return _keep(self._text_set(encoded))

    def _image_set(self, encoded: Encoded) -> PredictedSet:
        return self.image_set(encoded.vectors, encoded.mask, max_pool(encoded.vectors, encoded.mask))

    def _text_set(self, encoded: Encoded) -> PredictedSet:
        if self.config.text_global == "max":
            whole: Tensor | None = max_pool(encoded.vectors, encoded.mask)
        else:
            whole = encoded.whole
        locals_ = encoded.inputs if isinstance(self.text_encoder, GRUEncoder) else encoded.vectors
        return self.text_set(locals_, encoded.mask, whole)

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """The similarity of all pairs of sets: (n, m)."""
        x, y = self._set(images), self._set(texts)
        half = fused_dtype(x) if self._fits() else None
        return self._similarity(all_cosines(x, y)) if half is None else self._fused(x.to(half), y.to(half))

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        return self._similarity(pair_cosines(self._set(images), self._set(texts)))

    def logits(self, images: Kept, texts: Kept) -> Tensor:
        """Scores; of the match probability p, log p / (1 - p)."""
        if self.config.similarity != "mp":
            return self.score(images, texts)
        return mp_logit(all_cosines(self._set(images), self._set(texts)), self.mp_a, self.mp_b)

    def logit_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        if self.config.similarity != "mp":
            return self.score_pairs(images, texts)
        return mp_logit(pair_cosines(self._set(images), self._set(texts)), self.mp_a, self.mp_b)

    def has_kernels(self, regions: int = 1, words: int = 1) -> bool:
        """Of sets that fill a tile; a match probability's logits have none."""
        return self._fits() and self.config.similarity != "mp"

    def _fits(self) -> bool:
        sharp = self.config.similarity == "smooth-chamfer" and self.config.alpha > SHARPEST
        return self.config.slots in FUSED_SLOTS and not sharp

    def _fused(self, x: Tensor, y: Tensor) -> Tensor:
        """The similarity of all pairs of sets by a GPU kernel: (n, K, d), (m, K, d) of half precision -> (n, m)."""
        from diptych.matchers.kernels.sets import set_scores

        learned = (self.mp_a, self.mp_b) if self.config.similarity == "mp" else (None, None)
        return set_scores(x, y, self.config.similarity, self.config.alpha, *learned)

    def _set(self, side: Kept) -> Tensor:
        # A set is always full: what lies beyond its K elements is padding.
        return side.vectors[:, : self.config.slots]

    def _similarity(self, cosines: Tensor) -> Tensor:
        if self.config.similarity == "smooth-chamfer":
            return smooth_chamfer(cosines, self.config.alpha)
        if self.config.similarity == "chamfer":
            return chamfer(cosines)
        if self.config.similarity == "mil":
            return mil(cosines)
        return mp(cosines, self.mp_a, self.mp_b)

    def pair_figures(self, images: Kept, texts: Kept, owners: Tensor) -> dict[str, float]:
        """Mean circular variance of the sets of each side: 0 where they collapse to one vector."""
        return {
            "circular_variance/images": float(circular_variance(self._set(images)).mean()),
            "circular_variance/texts": float(circular_variance(self._set(texts)).mean()),
        }

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """slot_similarity: the cosines of a picture's elements with a sentence's; slot_to_region, slot_to_word.

        The last two are weights of every region or word in every slot after each iteration, a slot's sum being 1.
        """
        views = {"slot_similarity": View(all_cosines(self._set(images), self._set(texts)), ("slots", "slots"))}
        if encoded is None:
            return views
        regions, words = _weights(self._image_set(encoded[0])), _weights(self._text_set(encoded[1]))
        regions, words = of_pictures(regions, len(texts)), of_sentences(words, len(images))
        views["slot_to_region"] = View(regions, ("iterations", "slots", "regions"), "sum")
        views["slot_to_word"] = View(words, ("iterations", "slots", "words"), "sum")
        return views

    def points(self, kept: Kept) -> tuple[Tensor, str]:
        """The elements of each set."""
        return l2(self._set(kept).float()), "an element of a set"

    def layout(self) -> Layout | None:
        """K vectors an item; match probability has learned numbers of its own, which no store knows."""
        if self.config.similarity == "mp":
            return None
        similarity = "max" if self.config.similarity == "mil" else self.config.similarity
        return Layout(self.config.dim, self.config.slots, self.config.alpha, similarity)

    def pair_floats(self, regions: int, words: int) -> int:
        """K x K cosines, scaled, and the exponentials of one direction at a time; a kernel writes scores alone."""
        if self._fits() and fused_dtype_on(self.device) is not None:
            return 1
        return 4 * self.config.slots**2


def _keep(predicted: PredictedSet) -> DivEKept:
    mask = torch.ones(predicted.vectors.shape[:2], dtype=torch.bool, device=predicted.vectors.device)
    return DivEKept(predicted.vectors, mask, predicted.slots)


def _weights(predicted: PredictedSet) -> Tensor:
    """(n, iterations, slots, inputs), averaged over heads."""
    return torch.stack(predicted.weights, 1).mean(2)
