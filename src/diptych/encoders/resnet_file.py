"""A ResNet or ResNeXt from a file of weights with torchvision's names: ImageNet's, WSL's, or a detector's.

Nothing in the file is run, and its shapes say which network it is.
"""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.huggingface_vision import IMAGENET
from diptych.encoders.preprocess import Channels, Preprocess
from diptych.encoders.resnet import ResNet, ResNetLayout, ResNetStyle

SUFFIXES = (".pth", ".pt", ".safetensors")
STAGES = 4
# The detector saw blue, green, red in 0 … 255, less these means; ours sees red, green, blue in 0 … 1.
DETECTOR: tuple[Channels, Channels] = (
    (122.7717 / 255, 115.9465 / 255, 102.9801 / 255),
    (1 / 255, 1 / 255, 1 / 255),
)
_UNUSED = ("fc.", "num_batches_tracked")  # the classifier, and a counter that evaluation never sees
_PICKLES = (OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError, UnpicklingError)


def is_weights_file(name: str) -> bool:
    """Whether a backbone's name is that of a file of weights."""
    return name.endswith(SUFFIXES)


def load_resnet_file(path: Path, size: int | None, style: ResNetStyle = "torchvision") -> ResNet:
    """The network of a file, all of whose tensors must be there and fit; a classifier is left out.

    size: side of the square that pictures are resized to, 224 where None
    """
    weights = _without_prefix(_read(path))
    weights = {name: tensor for name, tensor in weights.items() if not _is_unused(name)}
    try:
        layout = resnet_layout(weights, style)
    except DiptychError as error:
        raise DiptychError(str(error), where=path) from None
    detector = style == "detector"
    if detector:
        weights["conv1.weight"] = weights["conv1.weight"].flip(1)
    mean, std = DETECTOR if detector else IMAGENET
    network = ResNet(str(path), layout, Preprocess(size or 224, mean, std, Image.Resampling.BILINEAR))
    expected = {name: tensor for name, tensor in network.state_dict().items() if not _is_unused(name)}
    for name in sorted({*expected, *weights}):
        if name not in weights:
            raise DiptychError(f"{name!r} is missing", where=path)
        if name not in expected:
            raise DiptychError(f"{name!r} is left over: a ResNet or ResNeXt has no such part", where=path)
        if weights[name].shape != expected[name].shape:
            shapes = f"{tuple(weights[name].shape)}; expected {tuple(expected[name].shape)}"
            raise DiptychError(f"{name!r} has shape {shapes}", where=path)
    network.load_state_dict(weights, strict=False)
    return network.eval()


def resnet_layout(tensors: Mapping[str, Tensor], style: ResNetStyle) -> ResNetLayout:
    """Depths, widths and groups from the shapes of tensors with torchvision's names."""

    def shape(name: str) -> tuple[int, ...]:
        if name not in tensors:
            raise DiptychError(f"{name!r} is missing")
        found = tuple(tensors[name].shape)
        if len(found) != 4:
            raise DiptychError(f"{name!r} has shape {found}; expected 4 dimensions")
        return found

    depths, inner, groups = [], [], 1
    for stage in (f"layer{s + 1}." for s in range(STAGES)):
        planes, per_group, *_ = shape(f"{stage}0.conv2.weight")
        depths.append(len({name.split(".")[1] for name in tensors if name.startswith(stage)}))
        inner.append(planes)
        groups = max(1, planes // max(1, per_group))
    dim, stem = shape(f"layer{STAGES}.0.conv3.weight")[0], shape("conv1.weight")[0]
    if dim % 2 ** (STAGES - 1):
        raise DiptychError("not a ResNet of four stages that double their channels")
    return ResNetLayout(tuple(depths), stem, tuple(inner), dim, groups, style)


def _is_unused(name: str) -> bool:
    return name.startswith(_UNUSED[0]) or name.endswith(_UNUSED[1])


def _read(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise DiptychError("no such file; expected the weights of a ResNet or ResNeXt", where=path)
    content: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except _PICKLES as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DiptychError(f"not a file of weights that can be read safely: {reason}", where=path) from None
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content or not all(isinstance(t, Tensor) for t in content.values()):
        raise DiptychError("expected tensors by name, such as conv1.weight", where=path)
    return content


def _without_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without what stands before all of them, such as `module.` or `resnet.`."""
    stems = [name for name in tensors if name.endswith("conv1.weight") and ".layer" not in f".{name}"]
    prefix = min(stems, key=len, default="").removesuffix("conv1.weight")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
