"""How the published models score all pairs, written from their papers' formulas: what ours is measured beside.

All three take one sentence at a time, repeat it for a shard of pictures, and compute all that the score of a pair is
made of for each of these pairs; i0 and c0 of MMCA, which are of one side alone, are taken as kept. Sentences are cut to
their own length, so no padding is computed here either.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.encoders.encoded import l2
from diptych.matchers.base import Matcher
from diptych.matchers.camp import CAMP
from diptych.matchers.kept import Kept
from diptych.matchers.mmca import MMCA
from diptych.matchers.scan import SCAN

SHARD = 128


def published_loop(matcher: Matcher, images: Kept, texts: Kept) -> Tensor:
    """Scores of all pairs (n, m), float32 in main memory; pictures of equally many regions."""
    of_sentence = {SCAN: _scan, CAMP: _camp, MMCA: _mmca}[type(matcher)]
    rows = []
    for start in range(0, len(images), SHARD):
        pictures = images[start : start + SHARD]
        columns = [
            of_sentence(matcher, pictures, texts[j].cut(length))  # type: ignore[operator]
            for j, length in enumerate(texts.lengths.tolist())
        ]
        rows.append(torch.stack(columns, 1).float().cpu())
    return torch.cat(rows)


def has_loop(matcher: Matcher) -> bool:
    """Whether the published loop of a matcher is written here, for its options."""
    if isinstance(matcher, SCAN):
        return matcher.config.affinity_norm == "clipped-l2" and matcher.config.aggregation in ("mean", "lse")
    if isinstance(matcher, CAMP):
        c = matcher.config
        return (c.messages, c.fusion, c.similarity, c.joint) == ("attention", "add", "mlp", "add") and not c.revised
    return isinstance(matcher, MMCA) and matcher.cross_unit is not None


def _scan(matcher: SCAN, images: Kept, text: Kept) -> Tensor:
    """Every context is formed; cosines over d."""
    pictures, words = images.vectors, text.vectors.expand(len(images), -1, -1).contiguous()
    queries, attended = (words, pictures) if matcher.config.direction == "t2i" else (pictures, words)
    affinities = F.leaky_relu(attended @ queries.transpose(1, 2), 0.1)
    affinities = affinities / (affinities.norm(dim=2, keepdim=True) + 1e-8)
    weights = (affinities.transpose(1, 2) * matcher.softmax_lambda).softmax(-1)
    cosines = F.cosine_similarity(queries, weights @ attended, dim=2)
    if matcher.config.aggregation == "lse":
        return (cosines * matcher.lse_lambda).exp().sum(1).log() / matcher.lse_lambda
    return cosines.mean(1)


def _camp(matcher: CAMP, images: Kept, text: Kept) -> Tensor:
    """Equations 1 to 13 of each pair: keys, messages, gates, fusion, aggregation, MLP."""
    v, t = images.vectors, text.vectors.expand(len(images), -1, -1).contiguous()
    keys, words = matcher.image_side.key(v), matcher.text_side.key(t)
    affinities = keys @ words.transpose(1, 2) / math.sqrt(keys.shape[-1])
    wholes = []
    for side, x, y, weights in (
        (matcher.image_side, v, t, affinities.softmax(-1)),
        (matcher.text_side, t, v, affinities.transpose(1, 2).softmax(-1)),
    ):
        message = weights @ y
        fused = x + message
        if matcher.config.gate == "vector":
            fused = (x * message).sigmoid() * fused
        elif matcher.config.gate == "scalar":
            fused = (x * message).sum(-1, keepdim=True).sigmoid() * fused
        fused = side.fusion(fused).relu()
        fused = fused + x if matcher.config.residual else fused
        real = torch.ones(fused.shape[:2], dtype=torch.bool, device=fused.device)
        items = side.aggregation(side.aggregation.project(fused), real)
        wholes.append((items.unsqueeze(-1) * fused).sum(1))
    return matcher.output(matcher.hidden(wholes[0] + wholes[1]).relu()).squeeze(-1).sigmoid()


def _mmca(matcher: MMCA, images: Kept, text: Kept) -> Tensor:
    """Regions and words of each pair stacked, one Transformer unit over them, convolutions over its words."""
    regions, words = images.vectors, text.vectors.expand(len(images), -1, -1)
    stacked = torch.cat((regions, words), 1)
    real = torch.ones(stacked.shape[:2], dtype=torch.bool, device=stacked.device)
    assert matcher.cross_unit is not None
    seen, told = matcher.cross_unit(stacked, real).split([regions.shape[1], words.shape[1]], 1)
    i1, c1 = l2(seen.mean(1)), (matcher.cross_cnn or matcher.text_cnn)(told, real[:, : words.shape[1]])
    whole = images.whole @ text.whole[0]  # type: ignore[attr-defined]
    return whole + matcher.config.alpha * (i1 * c1).sum(-1)
