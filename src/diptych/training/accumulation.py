"""A batch encoded a part at a time: the memory of one part, the loss and the gradient of the whole batch.

A contrastive loss takes its negatives from the whole batch, so summing the losses of small batches is another loss.
Here every part is encoded twice. The first time only what is kept of it stays; the loss is computed on what was kept
of all parts, and its gradient stops there. The second time each part hands its share of that gradient on to the
weights.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from diptych.data.batches import LocalFeatures, Pixels, Tokens
from diptych.matchers.kept import Kept
from diptych.training.batches import Batch

Sides = tuple[Kept, Kept]
Encode = Callable[[int, Batch], Sides]  # the part's number, which dropout is drawn by, and the part
Rows = TypeVar("Rows", bound=Pixels | LocalFeatures | Tokens)


class Parts:
    """A batch whose parts are encoded one after another."""

    def __init__(self, batch: Batch, count: int, encode: Encode) -> None:
        """encode: must draw the same dropout for the same number, and give what is kept with gradient."""
        self._batches = split(batch, count)
        self._encode = encode
        self._kept: list[Sides] = []

    def kept(self) -> Sides:
        """What is kept of the whole batch; its gradient is held, part by part, until `backward`."""
        for number, part in enumerate(self._batches):
            # With its graph, as the second time, so that the very same kernels draw the same dropout.
            images, texts = self._encode(number, part)
            self._kept.append((_leaves(images), _leaves(texts)))
        pictures = [ours for ours, _ in self._kept]
        sentences = [theirs for _, theirs in self._kept]
        return type(pictures[0]).cat(pictures), type(sentences[0]).cat(sentences)

    def backward(self) -> None:
        """Hand the gradient that came to what was kept on to the weights."""
        for number, (part, sides) in enumerate(zip(self._batches, self._kept, strict=True)):
            again = self._encode(number, part)
            given = [
                (tensor, leaf.grad)
                for side, before in zip(again, sides, strict=True)
                for tensor, leaf in zip(side.tensors().values(), before.tensors().values(), strict=True)
                if tensor.requires_grad and leaf.grad is not None
            ]
            if given:
                torch.autograd.backward([tensor for tensor, _ in given], [gradient for _, gradient in given])


def split(batch: Batch, count: int) -> list[Batch]:
    """A batch in so many parts, pictures and sentences in order; fewer where it has fewer of either.

    Which picture a sentence belongs to is of no account before the parts meet: parts are only encoded.
    """
    images = batch.images
    assert isinstance(images, Pixels | LocalFeatures)
    assert isinstance(batch.texts, Tokens)
    count = min(count, len(images), len(batch.texts))
    pictures = torch.arange(len(images)).tensor_split(count)
    sentences = torch.arange(len(batch.texts)).tensor_split(count)
    return [
        replace(batch, images=_rows(images, ours), texts=_rows(batch.texts, theirs))
        for ours, theirs in zip(pictures, sentences, strict=True)
    ]


def _rows(batch: Rows, which: Tensor) -> Rows:
    part = slice(int(which[0]), int(which[-1]) + 1)
    return replace(batch, **{f.name: getattr(batch, f.name)[part] for f in fields(batch)})


def _leaves(kept: Kept) -> Kept:
    """The same numbers, cut off from their graph, to collect a gradient."""
    detached = kept.detach()
    for tensor in detached.tensors().values():
        tensor.requires_grad_(tensor.is_floating_point())
    return detached


@contextmanager
def untouched_statistics(module: nn.Module) -> Iterator[None]:
    """BatchNorm's running statistics come back as they were: a part that is encoded twice counts once."""
    before = [(buffer, buffer.clone()) for layer in trained_statistics(module) for buffer in layer.buffers()]
    yield
    with torch.no_grad():
        for buffer, value in before:
            buffer.copy_(value)


def trained_statistics(module: nn.Module) -> list[nn.Module]:
    """The BatchNorm layers that normalise by what they are given: of a part, where a batch is encoded in parts."""
    return [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]


def tell_statistics(module: nn.Module) -> None:
    """Say where parts differ from the whole batch all the same."""
    if trained_statistics(module):
        print(
            "training.accumulate: BatchNorm layers normalise by the part that they are given, not by the whole batch;"
            " all else is exact",
            file=sys.stderr,
        )


def average_over_processes(module: nn.Module) -> None:
    """The mean of the processes' gradients, and the first one's buffers, where no wrapper has seen to it."""
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
