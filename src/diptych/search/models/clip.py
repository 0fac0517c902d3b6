"""CLIP, SigLIP and their kin of Hugging Face as models for search, without torchvision."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.encoders.backbones import Size
from diptych.encoders.huggingface_vision import from_hub, read_processor, read_statistics
from diptych.encoders.preprocess import Channels, normalise, resize
from diptych.search.models.embedder import Embedded, Embedder, unit
from diptych.search.stores.store import Layout

_CLIP: tuple[Channels, Channels] = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_HALVES: tuple[Channels, Channels] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True)
class ClipPreprocess:
    """How a picture becomes the square that the model sees.

    size: (height, width) that it is stretched to, or its shortest edge, the aspect kept
    crop: (height, width) cut from the middle, or None
    """

    size: tuple[int, int] | int
    crop: tuple[int, int] | None
    resample: int

    @classmethod
    def read(cls, settings: Mapping[str, Any], side: int) -> "ClipPreprocess":
        """From an image processor's settings; without any, a stretch to the model's own square."""
        resample = int(settings.get("resample", Image.Resampling.BICUBIC))
        size = _edges(settings.get("size"), side) if settings.get("do_resize", True) else (side, side)
        crop = None
        if settings and settings.get("do_center_crop", "crop_size" in settings):
            edges = _edges(settings.get("crop_size"), side)
            crop = (edges, edges) if isinstance(edges, int) else edges
        return cls((side, side) if isinstance(size, int) and crop is None else size, crop, resample)

    @property
    def side(self) -> int:
        """The larger side that is needed of a picture."""
        return self.size if isinstance(self.size, int) else max(self.size)

    def __call__(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (height, width, 3) uint8."""
        if isinstance(self.size, int):
            short, long = min(image.size), max(image.size)
            edges = self.size, int(self.size * long / short)
            width, height = edges if image.width <= image.height else edges[::-1]
        else:
            height, width = self.size
        pixels = resize(image, (width, height), self.resample)
        return pixels if self.crop is None else _centre(pixels, *self.crop)


def _centre(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle of a picture; black around it where it is too small."""
    missing = max(0, height - pixels.shape[0]), max(0, width - pixels.shape[1])
    if any(missing):
        before = [(m + 1) // 2 for m in missing]
        pixels = np.pad(pixels, [*((b, m - b) for b, m in zip(before, missing, strict=True)), (0, 0)])
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _edges(value: Any, side: int) -> tuple[int, int] | int:
    if isinstance(value, Mapping):
        if "height" in value and "width" in value:
            return int(value["height"]), int(value["width"])
        value = value.get("shortest_edge")
    return int(value) if isinstance(value, int) else side


def is_hugging_face(name: str) -> bool:
    """Whether a folder or hub name is a model of Hugging Face transformers, by its config.json."""
    if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
        return False
    if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") != 1):
        raise DiptychError(
            f"{name}: no such model; expected `default`, a run, a folder that save_pretrained wrote, or the name "
            "of a CLIP or SigLIP model on the Hugging Face hub"
        )
    with from_hub(name):
        from transformers import PretrainedConfig

        settings, _ = PretrainedConfig.get_config_dict(name)
    return "model_type" in settings


class ClipEmbedder(Embedder):
    """One vector a side: the projected pooled output of each tower."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        preprocess: ClipPreprocess,
        statistics: tuple[Channels, Channels],
        device: torch.device,
    ) -> None:
        self.name = name
        self.model = model.eval().to(device)
        self.device = device
        self.preprocess = preprocess
        self.side = preprocess.side
        self._statistics = statistics
        self._tokenizer = tokenizer
        self._tokenizing = threading.Lock()
        text = getattr(model.config, "text_config", model.config)
        self._longest = int(getattr(text, "max_position_embeddings", 0) or 64)
        # SigLIP was trained on sentences padded to full length, and does not mask the padding.
        self._padding = "max_length" if "siglip" in model.config.model_type else "longest"
        self.layout = Layout(self.embed_texts(["a"]).shape[-1])

    @classmethod
    def load(cls, name: str, device: torch.device) -> "ClipEmbedder":
        """From a folder or the hub."""
        with from_hub(name):
            from transformers import AutoModel, AutoTokenizer

            settings = read_processor(name)
            model: Any = AutoModel.from_pretrained(name, dtype=torch.float32)
            if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
                raise DiptychError(f"{name}: a {model.config.model_type} model does not embed pictures and sentences")
            side = getattr(getattr(model.config, "vision_config", None), "image_size", None)
            if not isinstance(side, int):
                raise DiptychError(f"{name}: its pictures have no fixed size; such models cannot be used for search")
            tokenizer = AutoTokenizer.from_pretrained(name)
        family = _HALVES if "siglip" in model.config.model_type else _CLIP
        preprocess = ClipPreprocess.read(settings, side)
        return cls(name, model, tokenizer, preprocess, read_statistics(settings, family), device)

    def prepare(self, image: Image.Image) -> np.ndarray:
        """As the model's own image processor does."""
        return self.preprocess(image)

    def embed_pixels(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], locals: bool = False) -> Embedded:
        """(n, 1, d)."""
        with torch.inference_mode():
            values = normalise(pixels, *self._statistics, self.device).contiguous()
            return Embedded(_vectors(self.model.get_image_features(pixel_values=values)), None)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """(n, 1, d)."""
        if not texts:
            return np.zeros((0, 1, self.layout.dim), np.float32)
        with self._tokenizing:  # Hugging Face tokenizers cannot be shared while they work
            tokens = self._tokenizer(
                list(texts), padding=self._padding, truncation=True, max_length=self._longest, return_tensors="pt"
            ).to(self.device)
        inputs = {"input_ids": tokens["input_ids"]}
        if self._padding == "longest" and "attention_mask" in tokens:
            inputs["attention_mask"] = tokens["attention_mask"]
        with torch.inference_mode():
            return _vectors(self.model.get_text_features(**inputs))


def _vectors(output: Any) -> np.ndarray:
    """(n, 1, d) unit vectors; releases of transformers differ in whether the vector comes bare."""
    vectors = output if isinstance(output, Tensor) else output.pooler_output
    return unit(vectors.float().cpu().numpy())[:, None]
