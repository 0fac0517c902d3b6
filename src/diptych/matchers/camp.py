"""CAMP (Wang et al., ICCV 2019): cross-modal adaptive message passing.

V (regions) and T (words) are local vectors in d dimensions, equations 15 to 17 (the encoders).

    A = (Wv V)' (Wt T)                                      affinities, 1
    V~ = softmax over regions of A' / sqrt(d_h), times V    what each word hears, 2 and 3
    T~ = softmax over words of A / sqrt(d_h), times T       what each region hears, 4
    g_i = sigmoid(v_i * t~_i),  h_j = sigmoid(t_j * v~_j)   gates, 5 and 7
    V^ = ReLU(Linear(g * (V + T~))) + V, and so for T^      gated fusion, 6 and 9
    v* = V^ softmax(w V^ / sqrt(d)), and so for t*          aggregation, 10 and 11
    score = sigmoid(MLP(v* + t*))                           13

The two directions are one computation with the roles of receiver and sender swapped. What is linear is moved out of
the pair wherever the options allow: a message is a weighted sum of the sender's vectors, so a matrix times a message is
the same weighted sum of the sender's vectors already multiplied. With a gate of one number a region (or none), the
whole Linear of the fusion is computed once a side; with the paper's gate vector it cannot be.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.common.fused import fused_dtype, fused_dtype_on, inner_products
from diptych.data.tokens import Tokenizer
from diptych.encoders.encoded import Encoded, l2, unit_rms
from diptych.encoders.images import FeatureConfig, ImageConfig, xavier_linear
from diptych.encoders.texts import GRUConfig, TextConfig
from diptych.matchers.base import Layout, Matcher, Sides, View
from diptych.matchers.camp_parts import (
    ALIGNED_PAIRS,
    EVERY_PAIR,
    Aggregation,
    CAMPKept,
    Meeting,
    RevisedKept,
    masked_softmax,
    uniform,
    weighted_sum,
)
from diptych.matchers.kept import Kept

LARGEST = 128  # vectors of an item up to which a pair's affinities fit into a kernel's registers


def default_text() -> GRUConfig:
    """The paper's BiGRU; sentences are clipped to 50 tokens."""
    return GRUConfig(limit=50)


@dataclass(frozen=True)
class CAMPConfig:
    """The paper's model; every ablation of its Table 3 and every released module is a setting of these options.

    affinity_dim: d_h of equation 1; None is d
    messages: `attention`; `mean`: the other side's mean vector, to all (w/o cross-attn); `none`: nothing passes (base)
    fusion: how a message joins what it reaches: `add`, `concat`, `product`; `none`: the messages themselves go on
    gate: `vector`, equation 5; `scalar`, one number a region or word, sigmoid(v_i . t~_i), the authors' code; `none`
    residual: what a region or word was is added to what the fusion makes of it
    aggregation: `attention`, equation 10; `multi-head`, the authors' two-layer MLP to `heads` heads; `mean`
    similarity: `mlp`, equation 13; `cosine`; `dot`
    joint: what the MLP sees of v* and t*: their sum (`add`) or both (`concat`)
    normalise: regions and words begin with a length of sqrt(d), so that neither drowns the other: a Linear of strong
        features is some sixty times as long as the states of a new GRU
    revised: the changes of the authors' `gate_fusion_new`: query and key maps apart, a second attention among the
        messages, which are then l2-normalised, no bias in the fusion, v* and t* l2-normalised
    """

    kind: Literal["camp"] = "camp"
    dim: int = 1024
    image: ImageConfig = field(default_factory=FeatureConfig)
    text: TextConfig = field(default_factory=default_text)
    affinity_dim: int | None = None
    messages: Literal["attention", "mean", "none"] = "attention"
    fusion: Literal["add", "concat", "product", "none"] = "add"
    gate: Literal["vector", "scalar", "none"] = "vector"
    residual: bool = True
    aggregation: Literal["attention", "multi-head", "mean"] = "attention"
    heads: int = 4
    similarity: Literal["mlp", "cosine", "dot"] = "mlp"
    joint: Literal["add", "concat"] = "add"
    normalise: bool = False
    revised: bool = False

    def __post_init__(self) -> None:
        check_bounds(self, "dim", "affinity_dim", "heads", low=1)
        if self.fusion == "none" and self.gate != "none":
            raise ValueError(f"gate: {self.gate!r} has nothing to gate with fusion 'none'; expected 'none'")
        if self.fusion == "none" and self.residual:
            raise ValueError("residual: there is nothing to add to with fusion 'none'; expected false")
        if self.messages == "none" and self.fusion != "none":
            raise ValueError(f"fusion: {self.fusion!r} has nothing to fuse with messages 'none'; expected 'none'")
        if self.messages == "mean" and self.fusion == "none":
            raise ValueError("messages: 'mean' sends all the same, which fusion 'none' cannot aggregate")
        if self.messages != "attention" and self.affinity_dim is not None:
            raise ValueError(f"affinity_dim: messages {self.messages!r} have no affinities; expected none")
        if self.revised and (self.messages != "attention" or self.fusion == "none"):
            raise ValueError("revised: needs messages 'attention' and a fusion")
        if self.similarity != "mlp" and self.joint != "add":
            raise ValueError(f"joint: {self.joint!r} is for the MLP; similarity is {self.similarity!r}")


def released_config(
    module: Literal["cross_attention", "gate_fusion", "gate_fusion_new"],
    fusion: Literal["add", "concat"] = "concat",
    dim: int = 1024,
    image: ImageConfig | None = None,
    text: TextConfig | None = None,
) -> CAMPConfig:
    """A module that the authors released, by its name in their configs; `fusion` is their `fusion_func`."""
    image, text = image or FeatureConfig(), text or default_text()
    if module == "cross_attention":
        return CAMPConfig(
            dim=dim, image=image, text=text,
            fusion="none", gate="none", residual=False, aggregation="multi-head", similarity="cosine",
        )  # fmt: skip
    return CAMPConfig(
        dim=dim, image=image, text=text,
        fusion=fusion, gate="scalar", aggregation="multi-head", joint=fusion, revised=module == "gate_fusion_new",
    )  # fmt: skip


class Side(nn.Module):
    """The parameters of one modality: how it is attended to, how it takes messages in, how it becomes one vector."""

    def __init__(self, config: CAMPConfig) -> None:
        super().__init__()
        dim, affinity_dim = config.dim, config.affinity_dim or config.dim
        if config.messages == "attention":
            self.key = xavier_linear(dim, affinity_dim, bias=False)
        if config.revised:
            self.query = xavier_linear(dim, affinity_dim, bias=False)
            self.message_key = xavier_linear(dim, dim, bias=False)
            self.message_query = xavier_linear(dim, dim, bias=False)
        if config.fusion != "none":
            width = 2 * dim if config.fusion == "concat" else dim
            self.fusion = xavier_linear(width, dim, bias=not config.revised)
        self.aggregation = Aggregation(config.aggregation, dim, config.heads)


class CAMP(Matcher):
    """Cross-modal adaptive message passing."""

    title = "CAMP"
    config: CAMPConfig

    def __init__(self, config: CAMPConfig, tokenizer: Tokenizer, assets: Path | None = None) -> None:
        super().__init__(config, tokenizer, assets)
        self.image_side, self.text_side = Side(config), Side(config)
        if config.similarity == "mlp":
            width = 2 * config.dim if config.joint == "concat" else config.dim
            self.hidden, self.output = xavier_linear(width, config.dim), xavier_linear(config.dim, 1)

    @property
    def linear_fusion(self) -> bool:
        """Whether the fusion's Linear moves out of the pair."""
        return self.config.fusion in ("add", "concat") and self.config.gate != "vector"

    # What is kept.

    def keep_images(self, encoded: Encoded) -> Kept:
        """All regions, (n, regions, d); of the base model, v* alone: (n, 1, d)."""
        return self._keep(encoded, self.image_side, self.text_side)

    def keep_texts(self, encoded: Encoded) -> Kept:
        """All words, (n, words, d); of the base model, t* alone: (n, 1, d)."""
        return self._keep(encoded, self.text_side, self.image_side)

    def _keep(self, encoded: Encoded, side: Side, other: Side) -> Kept:
        mask = encoded.mask
        # Pads have weight 0, which would not be enough if one of them overflowed.
        x = encoded.vectors.masked_fill(~mask.unsqueeze(-1), 0)
        if self.config.normalise:
            x = unit_rms(x)
        if self.config.messages == "none":
            one = weighted_sum(side.aggregation(side.aggregation.project(x), mask), x).unsqueeze(1)
            one = l2(one) if self.config.similarity == "cosine" else one
            return Kept(one, torch.ones(one.shape[:2], dtype=torch.bool, device=one.device))
        keys = side.key(x) if self.config.messages == "attention" else x[..., :0]
        own = sent = x[..., :0]
        if self.linear_fusion:
            d = self.config.dim
            own = F.linear(x, side.fusion.weight[:, :d])
            sent = F.linear(x, other.fusion.weight[:, -d:])
        elif self.config.fusion == "none":
            sent = other.aggregation.project(x)
        if not self.config.revised:
            return CAMPKept(x, mask, keys, own, sent)
        relation = side.message_query(x) @ side.message_key(x).transpose(1, 2) / math.sqrt(self.config.dim)
        return RevisedKept(x, mask, keys, own, sent, side.query(x), relation, x @ x.transpose(1, 2))

    # Scores.

    def score(self, images: Kept, texts: Kept) -> Tensor:
        """Equation 13, or the cosine or dot product of v* and t*: (n, m) float32."""
        logits = self.logits(images, texts)
        return logits.sigmoid() if self.config.similarity == "mlp" else logits

    def logits(self, images: Kept, texts: Kept) -> Tensor:
        """The score before its sigmoid: (n, m) float32."""
        return self._logits(images, texts, EVERY_PAIR)

    def score_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The same for aligned pairs: (n,) float32."""
        logits = self.logit_pairs(images, texts)
        return logits.sigmoid() if self.config.similarity == "mlp" else logits

    def logit_pairs(self, images: Kept, texts: Kept) -> Tensor:
        """The scores of aligned pairs before their sigmoid: (n,) float32."""
        return self._logits(images, texts, ALIGNED_PAIRS)

    def _logits(self, images: Kept, texts: Kept, meeting: Meeting) -> Tensor:
        if isinstance(images, CAMPKept) and isinstance(texts, CAMPKept):
            half = None
            if not meeting.aligned and self.has_kernels(images.mask.shape[1], texts.mask.shape[1]):
                half = fused_dtype(images.vectors)
            if half is not None:
                with torch.autocast(images.device.type, enabled=False), torch.cuda.device_of(images.vectors):
                    both = self._fused(images.to(dtype=half).contiguous(), texts.to(dtype=half).contiguous())
                return self._compare(*both)
            v, _ = self._receive(self.image_side, images, texts, meeting)
            t, _ = self._receive(self.text_side, texts, images, meeting)
            return self._compare(v if meeting.aligned else v.transpose(0, 1), t)
        v, t = images.vectors[:, 0], texts.vectors[:, 0]
        if self.config.similarity == "mlp" or meeting.aligned:
            return self._compare(meeting.senders(v), meeting.receivers(t))
        return inner_products(v, t)

    def has_kernels(self, regions: int = 1, words: int = 1) -> bool:
        """Of all options but the released modules' and rarer combinations, and items that a tile holds."""
        c = self.config
        if (
            max(regions, words) > LARGEST
            or c.messages != "attention"
            or c.revised
            or c.fusion == "none"
            or c.aggregation == "multi-head"
        ):
            return False
        return self.linear_fusion or c.gate == "vector" or (c.fusion == "product" and c.gate == "none")

    def _fused(self, images: CAMPKept, texts: CAMPKept) -> tuple[Tensor, Tensor]:
        """v* and t* of all pairs by GPU kernels: two of (n, m, d) in the type of what is given."""
        from diptych.matchers.kernels import camp

        c = self.config
        attention = camp.attend(images, texts, gated=c.gate == "scalar")
        join: camp.Join = "linear" if self.linear_fusion else c.fusion  # type: ignore[assignment]
        receivers = []
        for side in (self.image_side, self.text_side):
            first = side.aggregation.first
            scores = None if first is None else first.weight[0].float() / side.aggregation.scale
            receivers.append(camp.Receiver(side.fusion.weight, side.fusion.bias, scores, c.residual))
        v, t = images.vectors.new_empty(2, len(images), len(texts), c.dim)
        heard, gates = (attention.to_images, attention.to_texts), (attention.image_gates, attention.text_gates)
        vector = c.gate == "vector"
        camp.receive(receivers[0], images, texts, heard[0], gates[0], join, vector, v)
        camp.receive(receivers[1], texts, images, heard[1], gates[1], join, vector, t.transpose(0, 1))
        return v, t

    def _compare(self, v: Tensor, t: Tensor) -> Tensor:
        """v* and t* (..., d), which broadcast, to logits (...): the last step in float32, so that ranks do not tie."""
        if self.config.similarity == "dot":
            return (v.float() * t.float()).sum(-1)
        if self.config.similarity == "cosine":
            return (l2(v.float()) * l2(t.float())).sum(-1)
        if self.config.revised:
            v, t = l2(v), l2(t)
        if self.config.joint == "concat" or self.config.messages == "none":
            weight, d = self.hidden.weight, self.config.dim
            hidden = F.linear(v, weight[:, :d]) + F.linear(t, weight[:, -d:], self.hidden.bias)
        else:
            hidden = self.hidden(v + t)
        hidden = hidden.relu().float()
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden, self.output.weight.float(), self.output.bias.float()).squeeze(-1)

    def pair_floats(self, regions: int, words: int) -> int:
        """What is live at once in the wider of the two directions: so many (items, d) tensors, and the attention."""
        d, items = self.config.dim, max(regions, words)
        if self.has_kernels(regions, words) and fused_dtype_on(self.device) is not None:
            return self._fused_floats(regions, words)
        if self.config.messages == "none":
            return 3 * d if self.config.similarity == "mlp" else 1
        if self.config.fusion == "none":
            wide = 2 if self.config.aggregation == "multi-head" else 0
        elif self.linear_fusion:
            wide = 3
        else:
            wide = 6 if self.config.fusion == "concat" else 4
        attention = items * (items if self.config.revised else min(regions, words))
        return wide * items * d + 4 * attention + 6 * d

    def _fused_floats(self, regions: int, words: int) -> int:
        """The same with kernels: attention of both directions, and of one at a time what goes into its Linear and out.

        Two numbers of half precision count as one.
        """
        from diptych.matchers.kernels.camp import row_of

        d, items = self.config.dim, max(regions, words)
        # Of a linear fusion what came out is written where a sender is too large to be held at once, or for a mean.
        wide = 1 if self.linear_fusion else 3 if self.config.fusion == "concat" else 2
        attention = regions * row_of(words) + words * row_of(regions)
        return (attention + wide * items * d) // 2 + 2 * regions * words + items + 4 * d

    # Message passing to one side; tensors of pairs are (y, x, ...) as `Meeting` lays them out.

    def _receive(self, side: Side, x: CAMPKept, y: CAMPKept, meeting: Meeting) -> tuple[Tensor, Tensor]:
        """Receivers x having heard senders y: v* or t* (y, x, d), and the weights (y, x, r) that it was summed with."""
        attended = self._attend(x, y, meeting)
        mask = meeting.receivers(x.mask)
        if self.config.fusion == "none":
            # A sum of messages is one message: none of them is formed.
            items = side.aggregation(meeting.messages(attended, y.sent), mask)
            return meeting.messages(items.unsqueeze(-2) @ attended, y.vectors).squeeze(-2), items
        fused = self._fuse(side, x, y, self._scale(attended, y, meeting), meeting)
        items = side.aggregation(side.aggregation.project(fused), mask)
        return weighted_sum(items, fused), items

    def _attend(self, x: CAMPKept, y: CAMPKept, meeting: Meeting) -> Tensor:
        """Equations 1, 2 and 4: how much each item of x hears of each item of y, (y, x, r, w)."""
        real = meeting.senders(y.mask).unsqueeze(-2)
        if self.config.messages == "mean":
            return uniform(real, y.vectors.dtype)
        queries = x.queries if isinstance(x, RevisedKept) else x.keys
        attended = masked_softmax(meeting.products(queries, y.keys) / math.sqrt(queries.shape[-1]), real)
        if not isinstance(y, RevisedKept):
            return attended
        # The second attention: a message is a Y with weights a, so query . key of two messages is a relation a'.
        affinities = meeting.messages(attended, y.relation) @ attended.transpose(-1, -2)
        return masked_softmax(affinities, meeting.receivers(x.mask).unsqueeze(-2)) @ attended

    def _scale(self, attended: Tensor, y: CAMPKept, meeting: Meeting) -> Tensor:
        """The attention as it makes messages: with `revised` divided by the messages' lengths, (y, x, r, w)."""
        if not isinstance(y, RevisedKept):
            return attended
        with torch.autocast(attended.device.type, enabled=False):
            full = attended.float()
            squares = (meeting.messages(full, y.gram.float()) * full).sum(-1, keepdim=True)
            return (full / (squares.clamp(min=1e-12).sqrt() + 1e-8)).to(attended.dtype)

    def _gate(self, x: CAMPKept, y: CAMPKept, weights: Tensor, meeting: Meeting, message: Tensor | None) -> Tensor:
        """Equations 5 and 7: a vector (y, x, r, d) from the messages, or one number (y, x, r, 1)."""
        if message is not None:
            return (meeting.receivers(x.vectors).to(message.dtype) * message).sigmoid_()
        # x . message, from the inner products of x and y: the message itself is not needed.
        dots = meeting.products(x.vectors, y.vectors)
        return (weights * dots).sum(-1, keepdim=True).sigmoid().to(dots.dtype)

    def _fuse(self, side: Side, x: CAMPKept, y: CAMPKept, weights: Tensor, meeting: Meeting) -> Tensor:
        """Equations 6 and 9: (y, x, r, d)."""
        gate: Tensor | None = None
        if self.linear_fusion:
            if self.config.gate == "scalar":
                gate = self._gate(x, y, weights, meeting, None)
            heard = meeting.messages(weights, y.sent)
            fused = meeting.receivers(x.own).to(heard.dtype) + heard
            fused = fused if gate is None else gate * fused
            fused = fused if side.fusion.bias is None else fused + side.fusion.bias.to(fused.dtype)
        else:
            heard = meeting.messages(weights, y.vectors)
            if self.config.gate != "none":
                gate = self._gate(x, y, weights, meeting, heard if self.config.gate == "vector" else None)
            fused = side.fusion(self._join(meeting.receivers(x.vectors).to(heard.dtype), heard, gate))
        fused = fused.relu_()
        return fused + meeting.receivers(x.vectors).to(fused.dtype) if self.config.residual else fused

    def _join(self, x: Tensor, heard: Tensor, gate: Tensor | None) -> Tensor:
        """g * (x joined with its message): (y, x, r, d), or (y, x, r, 2d) for `concat`, gated in both halves."""
        if self.config.fusion == "concat":
            assert gate is not None
            return torch.cat((gate * x, gate * heard), -1)
        joined = x + heard if self.config.fusion == "add" else x * heard
        return joined if gate is None else gate * joined

    # What can be seen of it.

    def see(self, images: Kept, texts: Kept, encoded: Sides | None = None) -> dict[str, View]:
        """Attention, gates (the mean over d of a gate vector) and weights of the aggregation; of the base model none.

        word_to_region: how much each word hears of each region; word_gates: how much of it the word lets in;
        word_weights: its weight in t*; region_to_word, region_gates, region_weights: the same of regions
        """
        if not isinstance(images, CAMPKept) or not isinstance(texts, CAMPKept):
            return {}
        words, word_gates, word_weights = self._look(self.text_side, texts, images)
        regions, region_gates, region_weights = self._look(self.image_side, images, texts)
        views = {
            "word_to_region": View(words, ("words", "regions")),
            "region_to_word": View(regions.transpose(0, 1), ("regions", "words"), "sum"),
        }
        if word_gates is not None and region_gates is not None:
            views["word_gates"] = View(word_gates, ("words",))
            views["region_gates"] = View(region_gates.transpose(0, 1), ("regions",))
        views["word_weights"] = View(word_weights, ("words",), "sum")
        views["region_weights"] = View(region_weights.transpose(0, 1), ("regions",), "sum")
        return views

    def layout(self) -> Layout | None:
        """Of the base model with cosines, one vector an item."""
        alone = self.config.messages == "none" and self.config.similarity == "cosine"
        return Layout(self.config.dim) if alone else None

    def _look(self, side: Side, x: CAMPKept, y: CAMPKept) -> tuple[Tensor, Tensor | None, Tensor]:
        """Attention (y, x, r, w), gates (y, x, r) and aggregation weights (y, x, r) of x hearing y."""
        real = EVERY_PAIR.receivers(x.mask)
        gates = self._mean_gates(x, y, EVERY_PAIR)
        _, items = self._receive(side, x, y, EVERY_PAIR)
        return self._attend(x, y, EVERY_PAIR) * real.unsqueeze(-1), None if gates is None else gates * real, items

    def _mean_gates(self, x: CAMPKept, y: CAMPKept, meeting: Meeting) -> Tensor | None:
        """Gates, the mean over d of a vector: (y, x, r)."""
        if self.config.gate == "none":
            return None
        weights = self._scale(self._attend(x, y, meeting), y, meeting)
        message = meeting.messages(weights, y.vectors) if self.config.gate == "vector" else None
        return self._gate(x, y, weights, meeting, message).float().mean(-1)

    def pair_figures(self, images: Kept, texts: Kept, owners: Tensor) -> dict[str, float]:
        """Mean gates on each sentence with its own picture, `owners` (m,), and with one other, drawn with a fixed seed.

        `gate/positive/regions` and `gate/positive/words` are means over pairs of the mean over real items, and
        `gate/positive` the mean of the two; the same for `gate/negative`. Empty without gates.
        """
        if self.config.gate == "none":
            return {}
        n, owners = len(images), owners.to("cpu", torch.long)
        chosen = {"positive": owners}
        if n > 1:
            steps = torch.randint(1, n, owners.shape, generator=torch.Generator().manual_seed(0))
            chosen["negative"] = (owners + steps) % n
        figures: dict[str, float] = {}
        with self.inference():
            for name, rows in chosen.items():
                regions, words = self._gate_means(images, texts, rows)
                figures[f"gate/{name}"] = (regions + words) / 2
                figures[f"gate/{name}/regions"], figures[f"gate/{name}/words"] = regions, words
        return figures

    def _gate_means(self, images: Kept, texts: Kept, rows: Tensor) -> tuple[float, float]:
        """Mean gates of regions and of words where sentence j meets picture rows[j], a bounded part at a time."""
        part = max(1, 2**24 // self.pair_floats(images.mask.shape[1], texts.mask.shape[1]))
        totals = torch.zeros(2, dtype=torch.float64)
        for start in range(0, len(rows), part):
            x = images[rows[start : start + part].to(images.device)].to(self.device, torch.float32)
            y = texts[start : start + part].to(self.device, torch.float32)
            assert isinstance(x, CAMPKept)
            assert isinstance(y, CAMPKept)
            for i, (receiver, sender) in enumerate(((x, y), (y, x))):
                gates = self._mean_gates(receiver, sender, ALIGNED_PAIRS)
                assert gates is not None
                totals[i] += (gates * uniform(receiver.mask, gates.dtype)).sum().double().cpu()
        regions, words = (totals / max(len(rows), 1)).tolist()
        return regions, words
