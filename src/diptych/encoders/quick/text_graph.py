"""The layers of a BERT, and the Linear behind them, as a graph of OpenVINO."""

from typing import Any

import numpy as np
from torch import nn

from diptych.encoders.bert import Bert


def text_graph(bert: Bert, fc: nn.Linear) -> Any:
    """Embedded pieces of sentences without pads (n, pieces, hidden) -> (n, pieces, d): an `openvino.Model`."""
    import openvino as ov
    from openvino import opset13 as op

    config = bert.config
    states = x = op.parameter([-1, -1, config.hidden_size], np.float32, name="states")
    heads, per_head = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    for layer in bert.encoder.layer:  # type: ignore[union-attr]
        own, after = layer.attention["self"], layer.attention["output"]
        parts = [
            op.transpose(
                op.reshape(_linear(op, x, part), np.array([0, 0, heads, per_head]), special_zero=True),
                np.array([0, 2, 1, 3]),
            )
            for part in (own.query, own.key, own.value)
        ]
        seen = op.transpose(op.scaled_dot_product_attention(*parts), np.array([0, 2, 1, 3]))
        seen = op.reshape(seen, np.array([0, 0, config.hidden_size]), special_zero=True)
        x = _normal(op, op.add(_linear(op, seen, after.dense), x), after.LayerNorm)
        inner = op.gelu(_linear(op, x, layer.intermediate["dense"]), "erf")
        x = _normal(op, op.add(_linear(op, inner, layer.output.dense), x), layer.output.LayerNorm)
    return ov.Model([_linear(op, x, fc)], [states], "sentences")


def _linear(op: Any, x: Any, layer: nn.Linear) -> Any:
    return op.add(op.matmul(x, layer.weight.detach().numpy(), False, True), layer.bias.detach().numpy())


def _normal(op: Any, x: Any, norm: nn.LayerNorm) -> Any:
    normal = op.mvn(x, np.array([-1]), True, norm.eps, "inside_sqrt")
    return op.add(op.multiply(normal, norm.weight.detach().numpy()), norm.bias.detach().numpy())
