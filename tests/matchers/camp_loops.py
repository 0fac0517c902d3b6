"""CAMP written slowly: one pair, one region, one word at a time, with the paper's equations in order.

`paper_pair` follows the paper and its supplement; `released_pair` the three modules that the authors published, with
their names of the weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from diptych.matchers.camp import CAMP, Side

Vectors = list[Tensor]


@dataclass
class Traced:
    """What one pair went through; gates are means over d."""

    score: Tensor
    region_to_word: list[Tensor]
    word_to_region: list[Tensor]
    region_gates: list[Tensor]
    word_gates: list[Tensor]
    region_weights: Tensor
    word_weights: Tensor


def regions(matcher: CAMP, features: Tensor) -> Vectors:
    """Equation 15: v_i = W_I m_i + b_I."""
    fc = matcher.image_encoder.fc
    return [fc.weight @ m + fc.bias for m in features]


def words(matcher: CAMP, ids: list[int]) -> Vectors:
    """Equations 16 and 17: a GRU each way, one word after the other, averaged."""
    x = [matcher.text_encoder.embed.weight[i] for i in ids]
    rnn = matcher.text_encoder.rnn

    def run(inputs: Vectors, end: str) -> Vectors:
        w_i, w_h = getattr(rnn, f"weight_ih_l0{end}"), getattr(rnn, f"weight_hh_l0{end}")
        b_i, b_h = getattr(rnn, f"bias_ih_l0{end}"), getattr(rnn, f"bias_hh_l0{end}")
        h = torch.zeros(w_h.shape[1])
        states = []
        for word in inputs:
            r_i, z_i, n_i = (w_i @ word + b_i).chunk(3)
            r_h, z_h, n_h = (w_h @ h + b_h).chunk(3)
            r, z = torch.sigmoid(r_i + r_h), torch.sigmoid(z_i + z_h)
            h = (1 - z) * torch.tanh(n_i + r * n_h) + z * h
            states.append(h)
        return states

    forward, backward = run(x, ""), run(x[::-1], "_reverse")[::-1]
    return [(f + b) / 2 for f, b in zip(forward, backward, strict=True)]


def softmax(numbers: Vectors) -> Tensor:
    exponents = [torch.exp(n - max(numbers)) for n in numbers]
    return torch.stack([e / sum(exponents) for e in exponents])


def combine(weights: Tensor, vectors: Vectors) -> Tensor:
    total = torch.zeros_like(vectors[0])
    for weight, vector in zip(weights, vectors, strict=True):
        total = total + weight * vector
    return total


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a / a.norm()) @ (b / b.norm())


def mlp(matcher: CAMP, joint: Tensor) -> Tensor:
    hidden = torch.relu(matcher.hidden.weight @ joint + matcher.hidden.bias)
    return (matcher.output.weight @ hidden + matcher.output.bias)[0]


def paper_pair(matcher: CAMP, V: Vectors, T: Vectors) -> Traced:
    """A picture's regions and a sentence's words: equations 1 to 13; the logit where there is a sigmoid."""
    c = matcher.config
    image, text = matcher.image_side, matcher.text_side
    if c.normalise:
        V, T = ([x / x.norm() * c.dim**0.5 for x in side] for side in (V, T))
    if c.messages == "attention":
        d_h = c.affinity_dim or c.dim
        A = [[(image.key.weight @ v) @ (text.key.weight @ t) for t in T] for v in V]  # 1
        a_v = [softmax([A[i][j] / d_h**0.5 for i in range(len(V))]) for j in range(len(T))]  # 2
        a_t = [softmax([A[i][j] / d_h**0.5 for j in range(len(T))]) for i in range(len(V))]  # 4
    else:  # supplement 3
        a_v, a_t = [torch.full((len(V),), 1 / len(V)) for _ in T], [torch.full((len(T),), 1 / len(T)) for _ in V]
    V_heard = [combine(a, V) for a in a_v]  # 3
    T_heard = [combine(a, T) for a in a_t]  # 4
    gates_v, gates_t = [gate(c.gate, v, t) for v, t in zip(V, T_heard, strict=True)], []  # 5
    gates_t = [gate(c.gate, t, v) for t, v in zip(T, V_heard, strict=True)]  # 7, 8
    if c.messages == "none":  # supplement 1, 2
        V_fused, T_fused = V, T
    elif c.fusion == "none":  # supplement 1.3
        V_fused, T_fused = T_heard, V_heard
    else:
        V_fused = [fuse(matcher, image, v, t, g) for v, t, g in zip(V, T_heard, gates_v, strict=True)]  # 6
        T_fused = [fuse(matcher, text, t, v, h) for t, v, h in zip(T, V_heard, gates_t, strict=True)]  # 9
    weights_v, weights_t = aggregate(matcher, image, V_fused), aggregate(matcher, text, T_fused)
    v_star, t_star = combine(weights_v, V_fused), combine(weights_t, T_fused)  # 10, 11
    if c.similarity == "mlp":
        score = mlp(matcher, v_star + t_star if c.joint == "add" else torch.cat([v_star, t_star]))  # 13
    else:
        score = cosine(v_star, t_star) if c.similarity == "cosine" else v_star @ t_star
    return Traced(
        score, a_t, a_v, [g.mean() for g in gates_v], [h.mean() for h in gates_t], weights_v, weights_t
    )  # fmt: skip


def gate(kind: str, own: Tensor, heard: Tensor) -> Tensor:
    if kind == "vector":
        return torch.sigmoid(own * heard)
    return torch.sigmoid(own @ heard) if kind == "scalar" else torch.ones(())


def fuse(matcher: CAMP, side: Side, own: Tensor, heard: Tensor, g: Tensor) -> Tensor:
    if matcher.config.fusion == "add":
        joined = g * (own + heard)
    elif matcher.config.fusion == "product":
        joined = g * (own * heard)
    else:
        joined = torch.cat([g * own, g * heard])
    fused = torch.relu(side.fusion.weight @ joined + side.fusion.bias)
    return fused + own if matcher.config.residual else fused


def aggregate(matcher: CAMP, side: Side, fused: Vectors) -> Tensor:
    if matcher.config.aggregation == "mean":
        return torch.full((len(fused),), 1 / len(fused))
    return softmax([(side.aggregation.first.weight @ f)[0] / matcher.config.dim**0.5 for f in fused])


# The released modules. The authors' names of the pair side's weights, and ours; {1} is the image, {2} the text.
# `*.linear.2.bias` has no part here: it adds the same to all items before a softmax.
SIDES = {"img": ("1", "image_side"), "txt": ("2", "text_side")}
OUTPUT = {
    f"fc_out.{i}.{kind}": f"{ours}.{kind}"
    for i, ours in (("0", "hidden"), ("3", "output"))
    for kind in ("weight", "bias")
}


def released_names(module: str) -> dict[str, str]:
    """The authors' names of the pair side's weights -> ours."""
    names = {}
    reduce = "final_reduce" if module == "gate_fusion_new" else "reduce_layer"
    for word, (number, side) in SIDES.items():
        names[f"{word}_key_fc.weight"] = f"{side}.key.weight"
        names[f"{reduce}_{number}.linear.0.weight"] = f"{side}.aggregation.first.weight"
        names[f"{reduce}_{number}.linear.0.bias"] = f"{side}.aggregation.first.bias"
        names[f"{reduce}_{number}.linear.2.weight"] = f"{side}.aggregation.second.weight"
        if module != "cross_attention":
            names[f"fc_{number}.0.weight"] = f"{side}.fusion.weight"
        if module == "gate_fusion":
            names[f"fc_{number}.0.bias"] = f"{side}.fusion.bias"
        if module == "gate_fusion_new":
            names[f"{word}_query_fc.weight"] = f"{side}.query.weight"
            names[f"weighted_{word}_key_fc.weight"] = f"{side}.message_key.weight"
            names[f"weighted_{word}_query_fc.weight"] = f"{side}.message_query.weight"
    return names if module == "cross_attention" else {**names, **OUTPUT}


def released_pair(module: str, fusion: str, w: dict[str, Tensor], V: Vectors, T: Vectors) -> Tensor:
    """One pair through a released module, by the authors' names; the logit where there is a sigmoid."""
    root = V[0].numel() ** 0.5

    def attend(queries: Vectors, keys: Vectors, values: Vectors) -> Vectors:
        return [combine(softmax([q @ k / root for k in keys]), values) for q in queries]

    def through(name: str, vectors: Vectors) -> Vectors:
        return [w[f"{name}.weight"] @ x for x in vectors]

    def reduce(name: str, vectors: Vectors) -> Tensor:
        hidden = [torch.relu(w[f"{name}.linear.0.weight"] @ x + w[f"{name}.linear.0.bias"]) for x in vectors]
        scores = [w[f"{name}.linear.2.weight"] @ h + w[f"{name}.linear.2.bias"] for h in hidden]
        heads = [combine(softmax([s[head] for s in scores]), vectors) for head in range(len(scores[0]))]
        return sum(heads) / len(heads)

    def l2(x: Tensor) -> Tensor:
        return x / (x.norm() + 1e-8)

    new = module == "gate_fusion_new"
    img_keys, txt_keys = through("img_key_fc", V), through("txt_key_fc", T)
    img_queries = through("img_query_fc", V) if new else img_keys
    txt_queries = through("txt_query_fc", T) if new else txt_keys
    textual, visual = attend(img_queries, txt_keys, T), attend(txt_queries, img_keys, V)
    if module == "cross_attention":
        return cosine(reduce("reduce_layer_1", textual), reduce("reduce_layer_2", visual))
    if new:
        textual = attend(through("weighted_txt_query_fc", textual), through("weighted_txt_key_fc", textual), textual)
        visual = attend(through("weighted_img_query_fc", visual), through("weighted_img_key_fc", visual), visual)
        textual, visual = [l2(x) for x in textual], [l2(x) for x in visual]

    def join(a: Tensor, b: Tensor) -> Tensor:
        return a + b if fusion == "add" else torch.cat([a, b])

    def fused(name: str, own: Vectors, heard: Vectors) -> Vectors:
        bias = w.get(f"{name}.bias", 0)
        gated = [torch.sigmoid(x @ y) * join(x, y) for x, y in zip(own, heard, strict=True)]
        return [torch.relu(w[f"{name}.weight"] @ z + bias) + x for x, z in zip(own, gated, strict=True)]

    last = "final_reduce" if new else "reduce_layer"
    v, t = reduce(f"{last}_1", fused("fc_1.0", V, textual)), reduce(f"{last}_2", fused("fc_2.0", T, visual))
    if new:
        v, t = l2(v), l2(t)
    hidden = torch.relu(w["fc_out.0.weight"] @ join(v, t) + w["fc_out.0.bias"])
    return (w["fc_out.3.weight"] @ hidden + w["fc_out.3.bias"])[0]
