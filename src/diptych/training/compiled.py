"""Backbones and other modules compiled to fewer, larger kernels."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from diptych.common.errors import DiptychError
from diptych.matchers.base import Matcher

COLUMNS = 8  # sentences are padded to a multiple of so many pieces, which attention's kernels want


def compile_modules(matcher: Matcher) -> None:
    """Compile both backbones in place, and modules that say they can be; their weights keep their names.

    A step has equally many pictures each time, but sentences of all numbers and lengths. A module whose forward pass
    is operations on tensors alone says so by an attribute, `compiles`.
    """
    compiled = False
    for encoder, dynamic in ((matcher.image_encoder, False), (matcher.text_encoder, True)):
        backbone: Any = getattr(encoder, "backbone", None)
        if backbone is not None:
            backbone.compile(dynamic=dynamic)
            compiled = True
    for module in matcher.modules():
        if getattr(module, "compiles", False):
            module.compile()
            compiled = True
    if not compiled:
        raise DiptychError("training.compile: this matcher has no backbone to compile, nor anything else")
    torch.backends.cudnn.benchmark = True  # shapes repeat, so that looking for the fastest convolution pays


def columns(matcher: Matcher) -> int:
    """What the length of a padded batch of sentences should be a multiple of, for a compiled text backbone."""
    config: Any = getattr(getattr(matcher.text_encoder, "backbone", None), "config", None)
    positions = getattr(config, "max_position_embeddings", 1)
    return COLUMNS if positions % COLUMNS == 0 else 1


def uncompiled(compiled: bool) -> AbstractContextManager[Any]:
    """Run backbones as they are written, where batches of other sizes would have to be compiled anew."""
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()
