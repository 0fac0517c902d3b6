"""MMCA (Wei et al., CVPR 2020): multi-modality cross attention.

S(I, T) = i0.c0 + alpha i1.c1. i0 and c0 see one side alone; i1 and c1 come from one Transformer unit over the regions
and words of the pair, stacked.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.common.fused import fused_dtype, fused_dtype_on, inner_products
from diptych.data.tokens import Tokenizer
from diptych.encoders.convolutions import TextCNN
from diptych.encoders.encoded import Encoded, l2, unit_rms
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.pooling import mean_pool
from diptych.encoders.texts import TextConfig, TransformerConfig, TransformerEncoder
from diptych.encoders.transformer_unit import TransformerUnit
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.kept import Kept, kept
from diptych.matchers.mmca_pairs import cross_scores
from diptych.matchers.view import of_pictures


@dataclass(frozen=True)
class MMCAConfig:
    """Multi-modality cross attention. What the paper leaves open is an option; its default comes first.

    filters: of each convolution width; as many as `dim` where nothing is said, as in eq. 7
    alpha: weight of the cross part, which is not built at 0
    text: word pieces are limited to 32
    text_projection: a Linear takes the text encoder's states to `dim` before they are stacked with the regions, or
        they are kept as they are and `dim` must be their width (a GRU's states have that width already)
    normalisation: of c0 and c1: `l2` as the text says, or `layer-norm` as eq. 7 prints
    scale: attention is scaled by sqrt(dim / heads) (`head`, eq. 1) or by sqrt(dim) (`dim`, eq. 11)
    convolutions: c0 and c1 have their own, c0's running on the text encoder's own states; or share one set, which then
        runs on the states taken to `dim` for both
    convolve_pads: convolutions and their max see padding too; scores then depend on it
    cross_input: the cross unit takes the regions before or after self-attention
    normalise: regions and words begin with a length of sqrt(d), as in CAMP: stacked as they come, a Linear of strong
        features drowns the states of a new GRU
    """

    kind: Literal["mmca"] = "mmca"
    dim: int = 256
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=lambda: TransformerConfig(frozen=True, limit=32))
    heads: int = 16
    filters: int | None = None
    alpha: float = 0.2
    text_projection: Literal["project", "keep"] = "project"
    normalisation: Literal["l2", "layer-norm"] = "l2"
    scale: Literal["head", "dim"] = "head"
    convolutions: Literal["separate", "shared"] = "separate"
    convolve_pads: bool = False
    cross_input: Literal["regions", "self-attended"] = "regions"
    normalise: bool = False

    def __post_init__(self) -> None:
        check_bounds(self, "dim", "filters", low=1)
        check_bounds(self, "alpha", low=0)
        if self.heads < 1 or self.dim % self.heads:
            raise ValueError(f"heads: expected a divisor of dim = {self.dim}, got {self.heads}")


@dataclass(frozen=True)
class MMCAKept(Kept):
    """What one side of the cross unit needs.

    vectors: (n, k, d), regions or words as they enter the cross unit
    whole: (n, d), i0 or c0
    query, key, value: (n, k, d), the cross unit's maps of them; queries are scaled
    attended: (n, k, d), attention among the side's own elements
    own: (n, k, heads), the log of the sum of exponentials that `attended` was divided by
    """

    whole: Tensor = kept()
    query: Tensor = kept(1)
    key: Tensor = kept(1)
    value: Tensor = kept(1)
    attended: Tensor = kept(1)
    own: Tensor = kept(1)


class _CrossSide(NamedTuple):
    """One side after the cross unit; pairs are (n, m), or (n,) where aligned.

    vectors: (pairs, k, d)
    parts, share: (pairs, heads, k, others) and (pairs, heads, k), whose product is the weights on the other side
    """

    vectors: Tensor
    parts: Tensor
    share: Tensor

    def weights(self) -> Tensor:
        return self.parts * self.share.unsqueeze(-1)


class MMCA(Matcher):
    """Self-attention on each side, cross attention over both.

    Where the words look is told by what the score would miss first: the attention does not fall on what a word names.
    """

    title = "MMCA"
    looks = ("together", "word_to_region", "region_to_word")
    config: MMCAConfig

    def __init__(self, config: MMCAConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.self_unit = TransformerUnit(config.dim, config.heads, config.scale)
        self.cross_unit: TransformerUnit | None = None
        self.cross_cnn: TextCNN | None = None
        if config.alpha > 0:
            self.cross_unit = TransformerUnit(config.dim, config.heads, config.scale)
            if config.convolutions == "separate":
                self.cross_cnn = self._cnn(config.dim)
        self.text_cnn = self._cnn(self._settle_projection())

    @property
    def _filters(self) -> int:
        return self.config.filters or self.config.dim

    def _cnn(self, inputs: int) -> TextCNN:
        c = self.config
        return TextCNN(inputs, self._filters, c.dim, c.normalisation, c.convolve_pads)

    def _settle_projection(self) -> int:
        """Leave out the encoder's Linear where nothing sees it; the width of what c0's convolutions run on."""
        config, encoder = self.config, self.text_encoder
        if not isinstance(encoder, TransformerEncoder):
            return config.dim
        hidden: int = encoder.backbone.config.hidden_size
        if config.alpha > 0 and config.text_projection == "keep" and hidden != config.dim:
            raise DiptychError(
                f"text_projection: 'keep' needs dim = {hidden}, the text encoder's width; got {config.dim}"
            )
        if config.alpha == 0 or config.text_projection == "keep":
            encoder.fc = nn.Identity()  # type: ignore[assignment]
            return hidden
        return config.dim if config.convolutions == "shared" else hidden

    def keep_images(self, encoded: Encoded) -> Kept:
        """(n, regions, d); where alpha is 0, i0 alone, (n, 1, d)."""
        regions, mask = self._entering(encoded.vectors), encoded.mask
        attended = self.self_unit(regions, mask)
        i0 = l2(mean_pool(attended, mask))
        return self._keep(attended if self.config.cross_input == "self-attended" else regions, mask, i0)

    def keep_texts(self, encoded: Encoded) -> Kept:
        """(n, words, d); where alpha is 0, c0 alone, (n, 1, d)."""
        words = states = self._entering(encoded.vectors)
        if isinstance(self.text_encoder, TransformerEncoder) and self.config.convolutions == "separate":
            states = encoded.inputs
        return self._keep(words, encoded.mask, self.text_cnn(states, encoded.mask))

    def _entering(self, vectors: Tensor) -> Tensor:
        return unit_rms(vectors) if self.config.normalise else vectors

    def _keep(self, vectors: Tensor, mask: Tensor, whole: Tensor) -> Kept:
        if self.cross_unit is None:
            return Kept(whole.unsqueeze(1), torch.ones(len(whole), 1, dtype=torch.bool, device=whole.device))
        query, key, value = self.cross_unit.maps(vectors)
        attended, own = self.cross_unit.attend(query, key, value, mask)
        return MMCAKept(vectors, mask, whole, query, key, value, attended, own)

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """i0.c0 + alpha i1.c1 of all pairs: (n, m)."""
        if self.cross_unit is None:
            return inner_products(images.vectors[:, 0], texts.vectors[:, 0])
        images, texts = _own(images), _own(texts)
        alone = inner_products(images.whole, texts.whole)
        return alone + self.config.alpha * self._cross(images, texts, aligned=False)

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        if self.cross_unit is None:
            return (images.vectors[:, 0] * texts.vectors[:, 0]).sum(-1)
        images, texts = _own(images), _own(texts)
        return (images.whole * texts.whole).sum(-1) + self.config.alpha * self._cross(images, texts, aligned=True)

    def _cross(self, images: MMCAKept, texts: MMCAKept, aligned: bool) -> Tensor:
        """i1.c1 of all pairs (n, m), or of aligned ones (n,)."""
        assert self.cross_unit is not None
        cnn = self.cross_cnn or self.text_cnn
        if not aligned and self.has_kernels(images.mask.shape[1], texts.mask.shape[1]):
            half = fused_dtype(images.vectors, texts.vectors)
            if half is not None:
                from diptych.matchers.kernels import mmca

                with torch.autocast(images.device.type, enabled=False), torch.cuda.device_of(images.vectors):
                    return mmca.cross_scores(self.cross_unit, cnn, images.contiguous(), texts.contiguous(), half)
        if not aligned and not cnn.convolve_pads and _plain_float32(images, texts):
            return cross_scores(self.cross_unit, cnn, images, texts)
        regions = self._cross_side(images, texts, aligned, image_rows=True).vectors
        words = self._cross_side(texts, images, aligned, image_rows=False).vectors
        pairs = regions.shape[:-2]
        region_mask = _spread(images.mask, aligned, first=True).expand(*pairs, -1).flatten(0, -2)
        word_mask = _spread(texts.mask, aligned, first=False).expand(*pairs, -1).flatten(0, -2)
        i1 = l2(mean_pool(regions.flatten(0, -3), region_mask))
        c1 = cnn(words.flatten(0, -3), word_mask)
        return (i1 * c1).sum(-1).view(pairs)

    def has_kernels(self, regions: int = 1, words: int = 1) -> bool:
        """Of a whole unit, of widths and of items that tiles hold."""
        c = self.config
        wide = c.dim // c.heads > 64  # such a head meets fewer regions at once
        sizes = regions <= (64 if wide else 128) and words <= 64
        return sizes and self.cross_unit is not None and not c.convolve_pads and c.dim <= 256 and c.dim % 8 == 0

    def _cross_side(self, rows: MMCAKept, others: MMCAKept, aligned: bool, image_rows: bool) -> "_CrossSide":
        """One side's elements after the cross unit.

        A row's softmax runs over its own side and the other: the own part is kept, (attended, own), and is scaled to
        its share of the whole sum.
        """
        unit = self.cross_unit
        assert unit is not None
        # Einstein letters: a row's item, the other item, the pair; images come first in a pair.
        r, o, pair = ("p", "p", "p") if aligned else ("n", "m", "nm") if image_rows else ("m", "n", "nm")
        affinity = torch.einsum(f"{r}ihd,{o}jhd->{pair}hij", unit.split(rows.query), unit.split(others.key))
        affinity = affinity.to(torch.promote_types(affinity.dtype, torch.float32))
        pads = ~_spread(others.mask, aligned, first=not image_rows)[..., None, None, :]
        affinity = affinity.masked_fill_(pads, torch.finfo(affinity.dtype).min)
        # In place, for this is the largest tensor of all: exponentials that never overflow, their sum put together
        # with the kept one by logarithms.
        peak = affinity.detach().amax(-1, keepdim=True)
        parts = affinity.sub_(peak).exp_()
        peak = peak.squeeze(-1)
        own = _spread(rows.own.transpose(-2, -1), aligned, first=image_rows).to(parts.dtype)
        total = torch.logaddexp(own, peak + parts.sum(-1).log())
        own_share, other_share = (own - total).exp(), (peak - total).exp()
        gathered = torch.einsum(f"{pair}hij,{o}jhd->{pair}ihd", parts.to(others.value.dtype), unit.split(others.value))
        attended = _spread(unit.split(rows.attended), aligned, first=image_rows)
        attended = attended * own_share.transpose(-2, -1).unsqueeze(-1)
        attended = attended + gathered * other_share.transpose(-2, -1).unsqueeze(-1)
        out = unit.finish(_spread(rows.vectors, aligned, first=image_rows), attended.flatten(-2))
        return _CrossSide(out, parts, other_share)

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """region_to_region: weights of the self-attention unit; word_to_region, region_to_word: of the cross unit.

        All are averaged over heads. What is missing to a row's 1 in the cross unit goes to the row's own side; where
        alpha is 0 there is none.
        """
        views = {}
        if encoded is not None:
            regions = of_pictures(self._self_attention(encoded[0]), len(texts))
            views["region_to_region"] = View(regions, ("regions", "regions"))
        if self.cross_unit is not None:
            images, texts = _own(images), _own(texts)
            regions = self._cross_side(images, texts, aligned=False, image_rows=True).weights().mean(2)
            words = self._cross_side(texts, images, aligned=False, image_rows=False).weights().mean(2)
            regions, words = regions * images.mask[:, None, :, None], words * texts.mask[None, :, :, None]
            views["word_to_region"] = View(words, ("words", "regions"))
            views["region_to_word"] = View(regions, ("regions", "words"), "sum")
        return views

    def _self_attention(self, encoded: Encoded) -> Tensor:
        """Which regions each region attends to in the self-attention unit: (n, regions, regions), 0 at pads."""
        query, key, _ = self.self_unit.maps(self._entering(encoded.vectors))
        weights = self.self_unit.affinity(query, key, encoded.mask).softmax(-1).mean(1)
        return weights * encoded.mask.unsqueeze(-1)

    def points(self, kept: Kept) -> tuple[Tensor, str]:
        """i0 and c0."""
        whole = kept.whole if isinstance(kept, MMCAKept) else kept.vectors[:, 0]
        return l2(whole.float()).unsqueeze(1), "the global vector of a picture or sentence"

    def layout(self) -> Layout | None:
        """Where alpha is 0 and c0 is a unit vector, one vector an item."""
        alone = self.cross_unit is None and self.config.normalisation == "l2"
        return Layout(self.config.dim) if alone else None

    def pair_floats(self, regions: int, words: int) -> int:
        """The larger of two moments: one side in the cross unit, its affinity twice; and the convolutions."""
        if self.cross_unit is None:
            return 1
        c = self.config
        if self.has_kernels(regions, words) and fused_dtype_on(self.device) is not None:
            # What both sides' items gather, the largest of each filter, and c1; most of them in half precision.
            return (regions + words) * c.dim // 2 + 2 * self._filters + 3 * c.dim
        attention = 2 * c.heads * regions * words + 5 * c.dim * max(regions, words) + c.dim * min(regions, words)
        convolutions = c.dim * regions + words * (4 * c.dim + 3 * self._filters)
        return max(attention, convolutions)


def _own(side: Kept) -> MMCAKept:
    if not isinstance(side, MMCAKept):
        raise DiptychError("MMCA scores what its own keep_images and keep_texts gave")
    return side


def _plain_float32(images: Kept, texts: Kept) -> bool:
    """Whether nothing is differentiated and all products are in float32."""
    vectors = images.vectors, texts.vectors
    half = torch.is_autocast_enabled(images.device.type) or any(x.dtype != torch.float32 for x in vectors)
    return not half and not torch.is_grad_enabled()


def _spread(x: Tensor, aligned: bool, first: bool) -> Tensor:
    """Make room for the other side: images (n, 1, ...), texts (1, m, ...); aligned pairs stay (n, ...)."""
    if aligned:
        return x
    return x.unsqueeze(1) if first else x.unsqueeze(0)
