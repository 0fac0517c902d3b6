"""The encoders of a trained matcher once more, for the CPU and without gradients, where OpenVINO is installed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from diptych.encoders.bert import Bert
from diptych.encoders.encoded import Encoded
from diptych.encoders.images import PixelEncoder
from diptych.encoders.quick.folded import fold
from diptych.encoders.quick.image_graph import image_graph
from diptych.encoders.quick.int8_ranges import read_ranges
from diptych.encoders.quick.runtime import CompiledGraph, has_runtime
from diptych.encoders.quick.text_graph import text_graph
from diptych.encoders.texts import TransformerEncoder


class QuickImages:
    """Prepared pictures to local vectors. Its weights are a copy: the encoder that it was made of stays as it is.

    precision: `int8` or `float32`, for people
    """

    def __init__(self, graph: CompiledGraph, precision: str) -> None:
        self.graph = graph
        self.precision = precision

    def __call__(self, pixels: Sequence[np.ndarray]) -> Encoded:
        """uint8 (height, width, 3) each -> (n, cells, d); the cells before the projection are not there."""
        vectors = torch.from_numpy(self.graph(np.stack(pixels)))
        return Encoded(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool), None, vectors)


class QuickTexts:
    """Token numbers of one sentence at a time to local vectors; so there are no pads."""

    def __init__(self, graph: CompiledGraph, embeddings: nn.Module, most: int) -> None:
        self.graph = graph
        self.embeddings = embeddings
        self.most = most

    def __call__(self, ids: torch.Tensor) -> Encoded:
        """(1, pieces) -> (1, pieces, d)."""
        states = self.embeddings(ids)
        vectors = torch.from_numpy(self.graph(states.numpy()))
        return Encoded(vectors, torch.ones(ids.shape, dtype=torch.bool), vectors[:, 0], states)


def quick_images(encoder: nn.Module, folder: Path | None) -> Iterator[QuickImages]:
    """Quick forms of an image encoder in eval mode, the quickest first; those that the runtime can make.

    folder: of the model, which may hold the ranges of its 8-bit form
    """
    if not (has_runtime() and _on_cpu(encoder) and isinstance(encoder, PixelEncoder)):
        return
    blocks = fold(encoder)
    if blocks is None:
        return
    count = sum(len(block.convolutions) for block in blocks)
    for precision, ranges in (("int8", read_ranges(folder, encoder, count)), ("float32", [None] * count)):
        if ranges is None:
            continue
        try:
            graph = CompiledGraph(image_graph(blocks, encoder.backbone.preprocess, ranges))
        except Exception:  # a runtime that cannot make one form may still make the next
            continue
        yield QuickImages(graph, precision)


def quick_texts(encoder: nn.Module) -> QuickTexts | None:
    """The quick form of a text encoder in eval mode; None where there is none."""
    if not (has_runtime() and _on_cpu(encoder) and isinstance(encoder, TransformerEncoder)):
        return None
    bert = encoder.backbone
    if not isinstance(bert, Bert):
        return None
    return QuickTexts(CompiledGraph(text_graph(bert, encoder.fc)), bert.embeddings, bert.config.max_position_embeddings)


def _on_cpu(encoder: nn.Module) -> bool:
    return not encoder.training and next(encoder.parameters()).device.type == "cpu"
