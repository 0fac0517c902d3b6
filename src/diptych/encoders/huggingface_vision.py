"""Any Hugging Face vision model as a backbone: a CNN's last feature map, or a transformer's patch tokens."""

import inspect
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.common.hub import from_hub
from diptych.encoders.backbones import Backbone
from diptych.encoders.preprocess import Channels, Preprocess

IMAGENET: tuple[Channels, Channels] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES: tuple[Channels, Channels] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CLIP: tuple[Channels, Channels] = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_FAMILIES = {"clip": CLIP, "siglip": HALVES, "vit": HALVES, "beit": HALVES, "chinese_clip": CLIP, "blip": CLIP}


class HuggingFaceBackbone(Backbone):
    """A model's last hidden state as cells; class and register tokens, pooler and heads are left out."""

    def __init__(self, name: str, model: Any, preprocess: Preprocess) -> None:
        super().__init__()
        self.name = name
        self.model: Any = model
        self.preprocess = preprocess
        self.size = preprocess.size
        native = getattr(model.config, "image_size", None)
        interpolates = "interpolate_pos_encoding" in inspect.signature(model.forward).parameters
        self._options = {"interpolate_pos_encoding": True} if interpolates and native != self.size else {}
        hidden = self._try()
        self.grid = self._find_grid(hidden)
        self.dim = int(hidden.shape[1] if hidden.ndim == 4 else hidden.shape[-1])
        _drop_unused(model, hidden)

    @classmethod
    def load(cls, name: str, size: int | None = None) -> "HuggingFaceBackbone":
        """With its weights, from a folder or the hub."""
        if is_detector(name):
            raise DiptychError("a detector; its regions are features, but it is no backbone with a grid", where=name)
        with from_hub(name):
            from transformers import AutoModel

            settings = read_processor(name)
            model: Any = AutoModel.from_pretrained(name, dtype=torch.float32)
        model = _vision_tower(model, name)
        native = _side(settings) or getattr(model.config, "image_size", None) or 224
        mean, std = read_statistics(settings, _family(model.config.model_type))
        resample = int(settings.get("resample", Image.Resampling.BICUBIC))
        return cls(name, model.eval(), Preprocess(int(size or native), mean, std, resample))

    @classmethod
    def rebuild(cls, name: str, folder: Path, size: int | None = None) -> "HuggingFaceBackbone":
        """The architecture alone, from what `save_assets` wrote."""
        from transformers import AutoConfig, AutoModel

        saved = read_json(folder / "backbone.json")
        with from_hub(folder, "a saved backbone"):
            model = AutoModel.from_config(AutoConfig.from_pretrained(str(folder)))
            mean, std = tuple(saved["mean"]), tuple(saved["std"])
            preprocess = Preprocess(saved["size"] if size is None else size, mean, std, saved["resample"])
            return cls(name, model.eval(), preprocess)

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, size, size) -> (n, cells, dim)."""
        if pixels.shape[-2:] != (self.size, self.size):
            given = "x".join(map(str, pixels.shape[-2:]))
            raise DiptychError(f"built for {self.size}x{self.size} pixels, and was given {given}", where=self.name)
        hidden: Tensor = self.model(pixel_values=pixels, **self._options).last_hidden_state
        if hidden.ndim == 4:
            return hidden.flatten(2).transpose(1, 2)
        rows, columns = self.grid
        return hidden[:, -rows * columns :]

    def save_assets(self, folder: Path) -> None:
        """The model's own config.json, and how pictures are prepared."""
        folder = folder / "image_backbone"
        self.model.config.save_pretrained(str(folder))
        p = self.preprocess
        values = {"size": p.size, "mean": list(p.mean), "std": list(p.std), "resample": int(p.resample)}
        write_json(folder / "backbone.json", {"kind": "huggingface", **values})

    def _try(self) -> Tensor:
        """The last hidden state of one grey picture, which shows the grid and which parts are used."""
        try:
            output = self.model(pixel_values=torch.zeros(1, 3, self.size, self.size), **self._options)
            hidden: Tensor = output.last_hidden_state
        except (ValueError, RuntimeError, TypeError, AttributeError) as error:
            native = getattr(self.model.config, "image_size", None)
            hint = f"its own size is {native}" if native not in (None, self.size) else "it takes no plain pictures"
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DiptychError(f"does not work at {self.size} pixels, {hint}: {reason}", where=self.name) from None
        if hidden.ndim not in (3, 4):
            raise DiptychError(f"gives {hidden.ndim}-dimensional features; expected a map or tokens", where=self.name)
        return hidden

    def _find_grid(self, hidden: Tensor) -> tuple[int, int]:
        if hidden.ndim == 4:
            return (int(hidden.shape[2]), int(hidden.shape[3]))
        tokens = int(hidden.shape[1])
        patch = getattr(self.model.config, "patch_size", None)
        if isinstance(patch, int) and (self.size // patch) ** 2 <= tokens:
            side = self.size // patch
        else:  # stages that merge patches: what is left is a square
            side = isqrt(tokens)
            if side * side != tokens:
                raise DiptychError(f"{tokens} tokens are not a square grid of cells", where=self.name)
        return (side, side)


def is_detector(name: str) -> bool:
    """Whether a Hugging Face name or folder is an object detector."""
    with from_hub(name):
        from transformers import AutoConfig
        from transformers.models.auto.modeling_auto import MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES

        return AutoConfig.from_pretrained(name).model_type in MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES


def read_processor(name: str) -> Mapping[str, Any]:
    """The settings of a model's image processor; empty where it has none."""
    from transformers.utils import cached_file

    for file in ("preprocessor_config.json", "processor_config.json"):
        path = cached_file(
            name,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        if path is not None:
            settings: Mapping[str, Any] = read_json(Path(path))
            return settings.get("image_processor", settings)
    return {}


def read_statistics(settings: Mapping[str, Any], default: tuple[Channels, Channels]) -> tuple[Channels, Channels]:
    """Mean and standard deviation for values in 0 to 1, from an image processor's settings or the family's own."""
    mean, std = default
    if not settings.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    elif "image_mean" in settings and "image_std" in settings:
        mean, std = (_channels(settings[key], key) for key in ("image_mean", "image_std"))
    # A processor that scales otherwise than by 1/255 expects its statistics in that scale.
    scale = 255 * float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", True) else 255.0
    r, g, b = mean
    sr, sg, sb = std
    return (r / scale, g / scale, b / scale), (sr / scale, sg / scale, sb / scale)


def _channels(value: Any, key: str) -> Channels:
    values = [float(v) for v in value] if isinstance(value, list) else [float(value)] * 3
    if len(values) != 3:
        raise DiptychError(f"preprocessor_config.json: {key}: expected three numbers, got {value!r}")
    return (values[0], values[1], values[2])


def _side(settings: Mapping[str, Any]) -> int | None:
    """The side of the square that a processor makes, by cropping or resizing."""
    for key in ("crop_size", "size") if settings.get("do_center_crop", True) else ("size",):
        value = settings.get(key)
        if isinstance(value, Mapping):
            value = value.get("height", value.get("shortest_edge"))
        if isinstance(value, int) and value > 0:
            return value
    return None


def _family(model_type: str) -> tuple[Channels, Channels]:
    return _FAMILIES.get(model_type.removesuffix("_vision_model"), IMAGENET)


def _vision_tower(model: Any, name: str) -> Any:
    """The part that sees: the model itself, or the vision side of one that reads too."""
    while isinstance(getattr(model, "vision_model", None), nn.Module):
        model = model.vision_model
    if getattr(model, "main_input_name", "pixel_values") != "pixel_values":
        raise DiptychError(f"a {model.config.model_type} model does not take pictures", where=name)
    return model


def _drop_unused(model: nn.Module, hidden: Tensor) -> None:
    """Take out the parts that the cells do not depend on: poolers and heads, whose weights would get no gradient."""
    used: set[int] = set()
    seen: set[Any] = set()
    stack: list[Any] = [hidden.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            used.add(id(node.variable))
        stack.extend(next_node for next_node, _ in node.next_functions)
    for name, child in list(model.named_children()):
        parameters = list(child.parameters())
        if parameters and not any(id(p) in used for p in parameters):
            setattr(model, name, nn.Identity())
    for parameter in model.parameters():
        if id(parameter) not in used:
            parameter.requires_grad_(False)
