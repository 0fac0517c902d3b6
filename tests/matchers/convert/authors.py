"""The authors' models with the names of their tensors, written plainly from what is known of what they compute."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.data.batches import LocalFeatures, Tokens
from tests.matchers.inputs import FEATURE_DIM

D, W = 8, 7


def l2(x: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) + 1e-8)


def l1(x: Tensor) -> Tensor:
    return x / (x.abs().sum(dim=-1, keepdim=True) + 1e-8)


def sets(batch: LocalFeatures) -> list[Tensor]:
    """Each picture's real regions."""
    return [v[m] for v, m in zip(batch.vectors, batch.mask, strict=True)]


def sentences(tokens: Tokens) -> list[Tensor]:
    """Each sentence's real tokens."""
    return [i[m] for i, m in zip(tokens.ids, tokens.mask, strict=True)]


def shake(module: nn.Module) -> nn.Module:
    """Statistics and weights that differ from what a new module has."""
    for name, tensor in module.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0)
        elif ("norm" in name or "bn" in name) and tensor.is_floating_point():
            tensor.add_(0.3 * torch.randn_like(tensor))
    return module.eval()


def loud(*modules: nn.Module) -> None:
    """Larger keys and queries: with small ones every attention is nearly even, and a wrong one would not show."""
    for module in modules:
        for name, parameter in module.named_parameters():
            if any(part in name for part in ("_key_fc", "_query_fc")):
                parameter.data.mul_(3)


class Fc(nn.Module):
    """The image side of VSE++, SCAN and CAMP."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURE_DIM, D)


class Words(nn.Module):
    """Embeddings and a GRU; the states of one sentence, directions averaged."""

    def __init__(self, size: int, bidirectional: bool = True, layers: int = 1, gpool: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(size, W)
        self.rnn = nn.GRU(W, D, layers, batch_first=True, bidirectional=bidirectional)
        if gpool:
            self.gpool = GPool()

    def states(self, ids: Tensor) -> Tensor:
        out = self.rnn(self.embed(ids).unsqueeze(0))[0][0]
        return (out[:, :D] + out[:, D:]) / 2 if self.rnn.bidirectional else out


# VSE++


def vsepp_scores(image: Fc, text: Words, batch: LocalFeatures, tokens: Tokens, order: bool, absolute: bool) -> Tensor:
    v = torch.stack([l2(image.fc(x.mean(0))) for x in sets(batch)])
    s = torch.stack([l2(text.states(ids)[-1]) for ids in sentences(tokens)])
    if absolute:
        v, s = v.abs(), s.abs()
    if not order:
        return v @ s.T
    return torch.stack([torch.stack([-(b - a).clamp(min=0).pow(2).sum().sqrt() for b in s]) for a in v])


# SCAN


def scan_scores(
    image: Fc,
    text: Words,
    batch: LocalFeatures,
    tokens: Tokens,
    direction: str,
    aggregation: str,
    hot: float,
    lse: float,
    norm: str = "clipped_l2norm",
) -> Tensor:
    norms = {
        "softmax": lambda a: a.softmax(1), "l2norm": l2, "clipped_l2norm": lambda a: l2(F.leaky_relu(a, 0.1)),
        "l1norm": l1, "clipped_l1norm": lambda a: l1(F.leaky_relu(a, 0.1)), "clipped": lambda a: F.leaky_relu(a, 0.1),
        "no_norm": lambda a: a,
    }  # fmt: skip
    ways = {
        "Mean": lambda c: c.mean(), "Sum": lambda c: c.sum(), "Max": lambda c: c.max(),
        "LogSumExp": lambda c: (lse * c).exp().sum().log() / lse,
    }  # fmt: skip
    rows = []
    for x in sets(batch):
        regions, row = l2(image.fc(x)), []
        for ids in sentences(tokens):
            words = l2(text.states(ids))
            queries, context = (words, regions) if direction == "t2i" else (regions, words)
            affinities = norms[norm](context @ queries.T)  # each row over the queries
            attended = (affinities * hot).softmax(0).T @ context
            cosines = F.cosine_similarity(queries, attended, dim=-1)
            row.append(ways[aggregation](cosines))
        rows.append(torch.stack(row))
    return torch.stack(rows)


# VSE∞


class GPool(nn.Module):
    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(size, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, d) -> (d,)."""
        size = self.linear.in_features
        code = torch.zeros(len(x), size)
        for p in range(len(x)):
            for i in range(0, size, 2):
                angle = p / 10000 ** (i / size)
                code[p, i], code[p, i + 1] = math.sin(angle), math.cos(angle)
        states = self.gru(code.unsqueeze(0))[0][0]
        theta = (self.linear((states[:, :size] + states[:, size:]) / 2) / 0.1).softmax(0)
        return (theta * x.sort(dim=0, descending=True).values).sum(0)


class LayersMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(FEATURE_DIM, D // 2), nn.Linear(D // 2, D)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(D // 2), nn.BatchNorm1d(D)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.bns[0](self.layers[0](x)).relu())


class InfinityRegions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURE_DIM, D)
        self.mlp = LayersMLP()
        self.gpool = GPool()

    def forward(self, batch: LocalFeatures) -> Tensor:
        return torch.stack([l2(self.gpool(self.fc(x) + self.mlp(x))) for x in sets(batch)])


class InfinityPieces(nn.Module):
    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert
        self.linear = nn.Linear(bert.config.hidden_size, D)
        self.gpool = GPool()

    def forward(self, tokens: Tokens) -> Tensor:
        pieces = [self.bert(input_ids=ids.unsqueeze(0)).last_hidden_state[0] for ids in sentences(tokens)]
        return torch.stack([l2(self.gpool(self.linear(x))) for x in pieces])


def infinity_words(text: Words, tokens: Tokens) -> Tensor:
    return torch.stack([l2(text.gpool(text.states(ids))) for ids in sentences(tokens)])


class Block(nn.Module):
    """`first`: the 1 x 1 convolution strides, as in the detector; else the 3 x 3 one."""

    def __init__(self, inputs: int, inner: int, outputs: int, stride: int, groups: int, first: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 1, stride if first else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, 1 if first else stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn3(self.conv3(self.bn2(self.conv2(y)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class Net(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4)
        channels = 4
        for s, (depth, outputs) in enumerate(zip((1, 2, 1, 1), (8, 16, 32, 64), strict=True)):
            inner = outputs // 2
            stride = 2 if s else 1
            blocks = [Block(channels, inner, outputs, stride, groups, groups == 1)]
            blocks += [Block(outputs, inner, outputs, 1, groups, groups == 1) for _ in range(depth - 1)]
            setattr(self, f"layer{s + 1}", nn.Sequential(*blocks))
            channels = outputs
        self.fc = nn.Linear(64, 10)


class Backbone(nn.Module):
    """The network is there twice: whole, and in two parts that are run."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.resnet = net = Net(groups)
        pool = nn.MaxPool2d(3, 2, 0, ceil_mode=True) if groups == 1 else nn.MaxPool2d(3, 2, 1)
        self.base = nn.Sequential(net.conv1, net.bn1, nn.ReLU(), pool, net.layer1, net.layer2, net.layer3)
        self.top = nn.Sequential(net.layer4)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, D)
        self.gpool = GPool()


class InfinityGrid(nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.backbone = Backbone(groups)
        self.image_encoder = Cells()

    def forward(self, pixels: Tensor) -> Tensor:
        maps = self.backbone.top(self.backbone.base(pixels))
        cells = maps.flatten(2).transpose(1, 2)
        return torch.stack([l2(self.image_encoder.gpool(self.image_encoder.fc(x))) for x in cells])


# DivE


class PreNorm(nn.Module):
    def __init__(self, dim: int, fn: nn.Module, context: int | None = None) -> None:
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)
        self.norm_context = None if context is None else nn.LayerNorm(context)


class Attention(nn.Module):
    def __init__(self, context: int, heads: int, head: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(D, heads * head, bias=False)
        self.to_k = nn.Linear(context, heads * head, bias=False)
        self.to_v = nn.Linear(context, heads * head, bias=False)
        self.to_out = nn.Sequential(nn.Linear(heads * head, D), nn.Dropout(0.1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D, 3 * D), nn.GELU(), nn.Dropout(0.1), nn.Linear(3 * D, D))


class AggBlock(nn.Module):
    def __init__(self, context: int, heads: int, head: int, position: bool) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(4, D))
        attention = PreNorm(D, Attention(context, heads, head), context)
        feed_forward = PreNorm(D, FeedForward())
        layer = [attention, nn.Identity(), feed_forward, nn.Identity()]
        self.layers = nn.ModuleList([nn.ModuleList(layer) for _ in range(4)])  # the same modules four times
        self.last_layer = nn.Sequential(nn.LayerNorm(D))
        self.position = position

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """One item, padded as its batch was: (inputs, w), (inputs,) -> (4, d). A pad gives each slot a quarter."""
        slots = self.latents
        n, w = x.shape
        code = torch.zeros(n, w)
        if self.position:
            for p in range(n):
                for i in range(w):
                    angle = 2 * math.pi * (p + 1) / n / 10000 ** (2 * (i // 2) / w)
                    code[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
        for cross, _, forward, _ in self.layers:
            fn, inputs = cross.fn, cross.norm_context(x)
            q, k, v = fn.to_q(cross.norm(slots)), fn.to_k(inputs + code), fn.to_v(inputs)
            size = q.shape[-1] // fn.heads
            heads = []
            for h in range(fn.heads):
                part = slice(h * size, (h + 1) * size)
                logits = q[:, part] @ k[:, part].T / math.sqrt(size)
                share = logits.masked_fill(~mask, -1e4).softmax(0)
                heads.append(share / share.sum(1, keepdim=True) @ v[:, part])
            slots = slots + fn.to_out(torch.cat(heads, -1))
            slots = slots + forward.fn.net(forward.norm(slots))
        return self.last_layer(slots)


class SetModule(nn.Module):
    def __init__(self, context: int, heads: int, head: int, position: bool) -> None:
        super().__init__()
        self.residual_norm = nn.LayerNorm(D)
        self.agg_block = AggBlock(context, heads, head, position)

    def forward(self, x: Tensor, mask: Tensor, whole: Tensor) -> Tensor:
        return l2(self.residual_norm(whole) + self.agg_block(x, mask))


class SequenceNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(D // 2)


class HiddenMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(D, D // 2), SequenceNorm(), nn.Linear(D // 2, D)


class DivEImage(nn.Module):
    def __init__(self, heads: int, head: int) -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURE_DIM, D)
        self.mlp = HiddenMLP()
        self.spm = SetModule(D, heads, head, position=False)

    def forward(self, batch: LocalFeatures) -> Tensor:
        out = []
        for x, mask in zip(batch.vectors, batch.mask, strict=True):
            h = self.fc(x)
            h = h + self.mlp.fc2(self.mlp.bn.bn(self.mlp.fc1(h)).relu())
            out.append(self.spm(h, mask, h[mask].max(0).values))
        return torch.stack(out)


class DivEWords(Words):
    def __init__(self, size: int, heads: int, head: int) -> None:
        super().__init__(size)
        self.spm = SetModule(W, heads, head, position=True)

    def forward(self, tokens: Tokens, pool: str) -> Tensor:
        out = []
        for ids, mask in zip(tokens.ids, tokens.mask, strict=True):
            states, last = self.rnn(self.embed(ids[mask]).unsqueeze(0))
            local = (states[0, :, :D] + states[0, :, D:]) / 2
            whole = last[:, 0].mean(0) if pool == "rnn" else local.max(0).values
            out.append(self.spm(self.embed(ids), mask, whole))
        return torch.stack(out)


class DivEPieces(nn.Module):
    def __init__(self, bert: Any, heads: int, head: int) -> None:
        super().__init__()
        self.bert = bert
        self.linear = nn.Linear(bert.config.hidden_size, D)
        self.spm = SetModule(D, heads, head, position=False)

    def forward(self, tokens: Tokens, pool: str) -> Tensor:
        hidden = self.bert(input_ids=tokens.ids, attention_mask=tokens.mask.long()).last_hidden_state
        out = []
        for x, mask in zip(self.linear(hidden), tokens.mask, strict=True):
            out.append(self.spm(x, mask, x[0] if pool == "cls" else x[mask].max(0).values))
        return torch.stack(out)


class DivE(nn.Module):
    def __init__(self, image: DivEImage, text: DivEWords | DivEPieces) -> None:
        super().__init__()
        self.img_enc, self.txt_enc = image, text


def set_scores(images: Tensor, texts: Tensor, similarity: str, alpha: float) -> Tensor:
    rows = []
    for a in images:
        row = []
        for b in texts:
            c = a @ b.T
            if similarity == "max":
                row.append(c.max())
            elif similarity == "chamfer":
                row.append((c.max(1).values.mean() + c.max(0).values.mean()) / 2)
            else:
                one, other = (alpha * c).exp().sum(1).log(), (alpha * c).exp().sum(0).log()
                row.append((one.mean() + other.mean()) / (2 * alpha))
        rows.append(torch.stack(row))
    return torch.stack(rows)


# CAMP


class Reduce(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, heads))

    def forward(self, x: Tensor) -> Tensor:
        """(items, d) -> (d,): the heads' sums averaged."""
        return (self.linear(x).softmax(0).T @ x).mean(0)


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return (queries @ keys.T / math.sqrt(D)).softmax(-1) @ values


class Pair(nn.Module):
    """All three modules; `fusion` is `sum` or `concat`."""

    def __init__(self, module: str, fusion: str, heads: int = 4) -> None:
        super().__init__()
        self.module_, self.fusion = module, fusion
        names = ["img_key_fc", "txt_key_fc"]
        if module == "gate_fusion_new":
            names += ["img_query_fc", "txt_query_fc"]
            names += [f"weighted_{side}_{role}_fc" for side in ("img", "txt") for role in ("key", "query")]
        for name in names:
            setattr(self, name, nn.Linear(D, D, bias=False))
        width = 2 * D if fusion == "concat" else D
        if module != "cross_attention":
            bias = module == "gate_fusion"
            self.fc_1 = nn.Sequential(nn.Linear(width, D, bias=bias), nn.ReLU(), nn.Dropout(0.0))
            self.fc_2 = nn.Sequential(nn.Linear(width, D, bias=bias), nn.ReLU(), nn.Dropout(0.0))
            self.fc_out = nn.Sequential(nn.Linear(width, D), nn.ReLU(), nn.Dropout(0.0), nn.Linear(D, 1), nn.Sigmoid())
        reduce = "final_reduce" if module == "gate_fusion_new" else "reduce_layer"
        setattr(self, f"{reduce}_1", Reduce(heads))
        setattr(self, f"{reduce}_2", Reduce(heads))

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat((a, b), -1) if self.fusion == "concat" else a + b

    def forward(self, v: Tensor, t: Tensor) -> Tensor:
        """The regions (r, d) and words (w, d) of one pair."""
        new = self.module_ == "gate_fusion_new"
        image_queries = self.img_query_fc(v) if new else self.img_key_fc(v)
        text_queries = self.txt_query_fc(t) if new else self.txt_key_fc(t)
        heard = attend(image_queries, self.txt_key_fc(t), t)  # by each region, of the words
        seen = attend(text_queries, self.img_key_fc(v), v)  # by each word, of the regions
        if self.module_ == "cross_attention":
            return (l2(self.reduce_layer_1(heard)) * l2(self.reduce_layer_2(seen))).sum()
        if new:
            heard = l2(attend(self.weighted_txt_query_fc(heard), self.weighted_txt_key_fc(heard), heard))
            seen = l2(attend(self.weighted_img_query_fc(seen), self.weighted_img_key_fc(seen), seen))
        v = self.fc_1(self.join(v, heard) * (v * heard).sum(-1, keepdim=True).sigmoid()) + v
        t = self.fc_2(self.join(t, seen) * (t * seen).sum(-1, keepdim=True).sigmoid()) + t
        if new:
            return self.fc_out(self.join(l2(self.final_reduce_1(v)), l2(self.final_reduce_2(t))))[0]
        return self.fc_out(self.join(self.reduce_layer_1(v), self.reduce_layer_2(t)))[0]


def camp_scores(image: Fc, text: Words, pair: Pair, batch: LocalFeatures, tokens: Tokens) -> Tensor:
    words = [text.states(ids) for ids in sentences(tokens)]
    return torch.stack([torch.stack([pair(image.fc(x), t) for t in words]) for x in sets(batch)])
