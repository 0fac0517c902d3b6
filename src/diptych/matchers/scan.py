"""SCAN (Lee et al., ECCV 2018): stacked cross attention.

Each word looks at the regions (t2i), or each region at the words (i2t); how well each is answered, averaged, is the
score. The attended context V a is never formed: with unit vectors w, <w, V a> = Σ_r a_r (v_r . w) is already in the
affinities, and ‖V a‖² = aᵀ (VᵀV) a needs only the Gram matrix VᵀV, which is kept with the picture (or the sentence).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.common.fused import fused_dtype, fused_dtype_on
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2
from diptych.encoders.images import FeatureConfig, ImageConfig
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Matcher, Sides, View
from diptych.matchers.kept import Kept, all_real, kept

SOFTMAX_LAMBDAS = {"t2i": 9.0, "i2t": 4.0}
LSE_LAMBDAS = {"t2i": 6.0, "i2t": 5.0}
EPSILON = 1e-8
LARGEST = 128  # vectors of an item up to which its attention fits into a kernel's registers


@dataclass(frozen=True)
class SCANConfig:
    """Stacked cross attention.

    dim: the joint dimension d
    image, text: the encoders; SCAN's are one Linear and a bidirectional GRU
    direction: `t2i`, every word attends to the regions; `i2t`, every region attends to the words
    aggregation: how the words' (regions') cosines become one score: their `mean`, `max`, `sum`, or `lse`,
        log Σ exp(λ cos) / λ
    affinity_norm: what becomes of each region's (word's) affinities with the words (regions) before the attention; the
        paper's is `clipped-l2`: leaky ReLU, then divided by their l2 norm. The others are those of the authors' code
    softmax_lambda: the inverse temperature of the attention; none is the paper's, 9 for t2i and 4 for i2t
    lse_lambda: the λ of `lse`; none is the paper's, 6 for t2i and 5 for i2t (20 for i2t on COCO)
    """

    kind: Literal["scan"] = "scan"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=GRUConfig)
    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["mean", "lse", "max", "sum"] = "mean"
    affinity_norm: Literal["clipped-l2", "l2", "clipped-l1", "l1", "clipped", "softmax", "none"] = "clipped-l2"
    softmax_lambda: float | None = None
    lse_lambda: float | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "dim", low=1)
        check_bounds(self, "softmax_lambda", "lse_lambda", above=0)


@dataclass(frozen=True)
class Attended(Kept):
    """The side that is attended to: unit vectors and their Gram matrix.

    gram: (n, k, k), the inner products of an item's vectors; 0 where one of the two is padding
    """

    gram: Tensor = kept(1, 2)


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision is enough for the large products, not for norms and exponentials."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SCAN(Matcher):
    """Stacked cross attention, in Gram form."""

    title = "SCAN"
    config: SCANConfig

    def __init__(self, config: SCANConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.softmax_lambda = config.softmax_lambda or SOFTMAX_LAMBDAS[config.direction]
        self.lse_lambda = config.lse_lambda or LSE_LAMBDAS[config.direction]

    def keep_images(self, encoded: Encoded) -> Kept:
        """Unit region vectors (n, regions, d), and for t2i their Gram matrices (n, regions, regions)."""
        return self._keep(encoded, attended=self.config.direction == "t2i")

    def keep_texts(self, encoded: Encoded) -> Kept:
        """Unit word vectors (n, words, d), and for i2t their Gram matrices (n, words, words)."""
        return self._keep(encoded, attended=self.config.direction == "i2t")

    def _keep(self, encoded: Encoded, attended: bool) -> Kept:
        # Padding is 0 from here on, so its affinities are 0 too and the norm over words sees real words only.
        vectors = l2(at_least_float32(encoded.vectors)).masked_fill(~encoded.mask.unsqueeze(-1), 0.0)
        if not attended:
            return Kept(vectors, encoded.mask)
        with torch.autocast(vectors.device.type, enabled=False):
            gram = vectors @ vectors.transpose(1, 2)
        return Attended(vectors, encoded.mask, gram)

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """Mean, LogSumExp, max or sum over words (regions) of their cosine with what they attend to: (n, m)."""
        half = fused_dtype(images.vectors) if self.has_kernels(images.mask.shape[1], texts.mask.shape[1]) else None
        if half is not None:
            return self._fused(images, texts, half)
        if self.config.direction == "t2i":
            return self._all_pairs(images, texts)
        return self._all_pairs(texts, images).T

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,)."""
        attended, queries = (images, texts) if self.config.direction == "t2i" else (texts, images)
        affinities = torch.bmm(attended.vectors, queries.vectors.transpose(1, 2)).unsqueeze(2)
        norms, mask = queries.vectors.norm(dim=-1).unsqueeze(1), queries.mask.unsqueeze(1)
        cosines, _ = self._cosines(affinities, attended, norms, mask)
        return self._aggregate(cosines, mask).squeeze(1)

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """word_to_region and word_fit with t2i, region_to_word and region_fit with i2t.

        How much each word attends to each region (or the other way round), and the cosine of each with what it
        attends to.
        """
        t2i = self.config.direction == "t2i"
        attended, queries = (images, texts) if t2i else (texts, images)
        cosines, weights = self._cosines(*self._affinities(attended, queries))
        cosines = cosines.masked_fill(~queries.mask, 0.0)
        weights = weights.masked_fill(~queries.mask, 0.0).permute(0, 2, 3, 1)
        if t2i:
            return {"word_to_region": View(weights, ("words", "regions")), "word_fit": View(cosines, ("words",))}
        return {
            "region_to_word": View(weights.transpose(0, 1), ("regions", "words"), "sum"),
            "region_fit": View(cosines.transpose(0, 1), ("regions",)),
        }

    def has_kernels(self, regions: int = 1, words: int = 1) -> bool:
        """With all options, of items that a tile holds."""
        return max(regions, words) <= LARGEST

    def _fused(self, images: Kept, texts: Kept, half: torch.dtype) -> Tensor:
        """The scores of all pairs by GPU kernels: (n, m)."""
        from diptych.matchers.kernels.scan import scan_scores

        scores = torch.empty(len(images), len(texts), device=images.device)
        t2i = self.config.direction == "t2i"
        attended, queries, out = (images, texts, scores) if t2i else (texts, images, scores.T)
        assert isinstance(attended, Attended)
        scan_scores(
            attended, attended.gram, queries, out, dtype=half,
            affinity_norm=self.config.affinity_norm, softmax_lambda=self.softmax_lambda,
            aggregation=self.config.aggregation, lse_lambda=self.lse_lambda,
        )  # fmt: skip
        return scores

    def pair_floats(self, regions: int, words: int) -> int:
        """Affinities, attention and one product of the two are alive at once, with a copy while they change type.

        Kernels write the affinities alone, and the score.
        """
        if self.has_kernels(regions, words) and fused_dtype_on(self.device) is not None:
            attended, queries = (regions, words) if self.config.direction == "t2i" else (words, regions)
            return attended * -(-queries // 4) * 4 + 1  # rows are read four numbers at a time
        return 4 * regions * words + 4 * max(regions, words)

    def _all_pairs(self, attended: Kept, queries: Kept) -> Tensor:
        cosines, _ = self._cosines(*self._affinities(attended, queries))
        return self._aggregate(cosines, queries.mask.unsqueeze(0))

    def _affinities(self, attended: Kept, queries: Kept) -> tuple[Tensor, Kept, Tensor, Tensor]:
        """What `_cosines` takes, of all pairs."""
        (n, k, d), (m, q, _) = attended.vectors.shape, queries.vectors.shape
        affinities = attended.vectors.reshape(n * k, d) @ queries.vectors.reshape(m * q, d).T
        norms = queries.vectors.norm(dim=-1).unsqueeze(0)
        return affinities.view(n, k, m, q), attended, norms, queries.mask.unsqueeze(0)

    def _cosines(self, affinities: Tensor, attended: Kept, norms: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """cos(w, V a) of every query vector w (n, m, q), and its attention a (n, k, m, q).

        affinities: (n, k, m, q), v_r . w; norms: (n or 1, m, q), ‖w‖; mask: (n or 1, m, q), the real queries
        """
        assert isinstance(attended, Attended)
        affinities = at_least_float32(affinities)
        n, k, m, q = affinities.shape
        attention = self._attention(affinities, attended.mask, mask)
        dots = _times(affinities, attention).sum(1)
        del affinities
        flat = attention.view(n, k, m * q)
        squares = _times(torch.bmm(attended.gram.to(flat.dtype), flat), flat).sum(1).view(n, m, q)
        # Rounding may leave a tiny negative square, and the root has no slope at 0.
        lengths = squares.clamp(min=EPSILON**2).sqrt()
        return dots / (norms * lengths).clamp(min=EPSILON), attention

    def _attention(self, affinities: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
        """Each attended vector's row made comparable over the queries, softmax over the attended ones."""
        rows = self._sharpened(affinities, queries)
        if not all_real(mask):
            # The lowest number in place of -∞: an item of padding alone then gets the context 0, not NaN.
            rows = rows.masked_fill(~mask[:, :, None, None], torch.finfo(rows.dtype).min)
        return rows.softmax(1)

    def _sharpened(self, rows: Tensor, queries: Tensor) -> Tensor:
        """λ times `affinity_norm` of (n, k, m, q), over the queries, whose pads have affinities of 0."""
        norm = self.config.affinity_norm
        if norm == "softmax":
            return (
                rows.masked_fill(~queries.unsqueeze(1), torch.finfo(rows.dtype).min).softmax(-1) * self.softmax_lambda
            )
        clipped = norm.startswith("clipped")
        if clipped:
            rows = F.leaky_relu(rows, 0.1)
        if norm in ("clipped", "none"):
            return rows * self.softmax_lambda
        order = 2 if norm.endswith("l2") else 1
        factors = self.softmax_lambda / (rows.norm(order, dim=-1, keepdim=True) + EPSILON)
        return _times(rows, factors) if clipped else rows * factors

    def _aggregate(self, cosines: Tensor, mask: Tensor) -> Tensor:
        """(n, m, q) and mask (n or 1, m, q) -> (n, m); 0 where there is nothing to aggregate."""
        how = self.config.aggregation
        if how in ("mean", "sum"):
            total = cosines.masked_fill(~mask, 0.0).sum(-1)
            return total if how == "sum" else total / mask.sum(-1).clamp(min=1)
        scaled = cosines * self.lse_lambda if how == "lse" else cosines
        # The lowest number in place of -∞, whose logarithm has no slope.
        scaled = scaled.masked_fill(~mask, torch.finfo(scaled.dtype).min)
        score = scaled.logsumexp(-1) / self.lse_lambda if how == "lse" else scaled.amax(-1)
        return score.masked_fill(~mask.any(-1), 0.0)


def _times(x: Tensor, y: Tensor) -> Tensor:
    """x * y; written over x, which is not needed any more, where there are no gradients."""
    return x * y if torch.is_grad_enabled() else x.mul_(y)
