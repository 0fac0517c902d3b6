"""Object detectors of the DETR family as a source of regions: the surest queries' vectors and boxes."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.hub import from_hub
from diptych.data.collection import Regions
from diptych.encoders.backbones import Extractor, Size
from diptych.encoders.huggingface_vision import IMAGENET, read_processor, read_statistics
from diptych.encoders.preprocess import Channels, normalise, resize

REGIONS = 36
_SQUARES = ("rt_detr", "rt_detr_v2", "d_fine")  # by default on squares of 640 pixels, in 0 to 1, not normalised


@dataclass(frozen=True)
class DetectorPreprocess:
    """How a picture is resized for a detector.

    shortest, longest: edges in pixels; the aspect is kept. longest None: a square of side `shortest`, aspect ignored
    multiple: both edges are cut to a multiple of it
    """

    shortest: int
    longest: int | None
    mean: Channels
    std: Channels
    multiple: int = 1
    resample: int = Image.Resampling.BILINEAR

    def target(self, size: Size) -> Size:
        """Width and height that a picture of this width and height is resized to."""
        if self.longest is None:
            return (self.shortest, self.shortest)
        short, long = min(size), max(size)
        edge = min(float(self.shortest), self.longest * short / long)
        small, large = round(edge), int(edge * long / short)
        if small == short:
            large = long
        small, large = (max(self.multiple, side - side % self.multiple) for side in (small, large))
        return (small, large) if size[0] < size[1] else (large, small)

    def pixels(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (height, width, 3) uint8."""
        return resize(image, self.target(image.size), self.resample)


class Detector(Extractor):
    """A Hugging Face detector; its regions are the `count` queries whose best class is surest, no-object left out."""

    grid = None

    def __init__(self, name: str, model: Any, preprocess: DetectorPreprocess, count: int = REGIONS) -> None:
        super().__init__()
        if count < 1:
            raise DiptychError(f"regions: expected at least 1, got {count}")
        self.name = name
        self.model: Any = model
        self.preprocess = preprocess
        self.count = count
        self.size = preprocess.shortest
        self.dim = int(getattr(model.config, "d_model", None) or model.config.hidden_size)
        self._masked = "pixel_mask" in inspect.signature(model.forward).parameters

    def prepare(self, image: Image.Image) -> np.ndarray:
        """An RGB picture to (height, width, 3) at the detector's scale."""
        return self.preprocess.pixels(image)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n, 3, height, width) -> vectors (n, k, dim), boxes (n, k, 4) as x0 y0 x1 y1 in 0 to 1, scores (n, k)."""
        n, _, height, width = pixels.shape
        mask = {"pixel_mask": pixels.new_ones(n, height, width, dtype=torch.long)} if self._masked else {}
        output = self.model(pixel_values=pixels, **mask)
        logits, boxes = output.logits, output.pred_boxes
        hidden = output.last_hidden_state[:, -logits.shape[1] :]  # YOLOS puts its queries after the patches
        scores, best = confidences(logits, self.model.config.num_labels).topk(min(self.count, logits.shape[1]))
        rows = torch.arange(n, device=best.device).unsqueeze(1)
        return hidden[rows, best], to_corners(boxes[rows, best]), scores

    def extract(self, pixels: Sequence[np.ndarray], sizes: Sequence[Size], dtype: torch.dtype) -> list[Regions]:
        """The regions of each picture. Only pictures of one shape run together: nothing is ever padded, so that a
        picture's regions do not depend on its neighbours."""
        shapes: dict[tuple[int, ...], list[int]] = {}
        for i, p in enumerate(pixels):
            shapes.setdefault(p.shape, []).append(i)
        regions: dict[int, Regions] = {}
        for members in shapes.values():
            batch = normalise([pixels[i] for i in members], self.preprocess.mean, self.preprocess.std, self.device)
            vectors, boxes, scores = self(batch)
            for i, v, b, s in zip(members, vectors.to(dtype).cpu(), boxes.cpu(), scores.float().cpu(), strict=True):
                corners = (b.float() * torch.tensor(sizes[i]).repeat(2)).numpy()
                regions[i] = Regions(v.numpy(), corners, sizes[i], s.numpy())
        return [regions[i] for i in range(len(pixels))]


def confidences(logits: Tensor, labels: int) -> Tensor:
    """How sure each query is of its best class: (n, queries, classes) -> (n, queries).

    One class more than there are labels is "no object" under a softmax (DETR, YOLOS); else each class has a sigmoid
    of its own (Conditional, Deformable and RT-DETR).
    """
    if logits.shape[-1] == labels + 1:
        return logits.softmax(-1)[..., :-1].amax(-1)
    return logits.sigmoid().amax(-1)


def to_corners(boxes: Tensor) -> Tensor:
    """Centre, width and height to x0 y0 x1 y1, cut at the picture's edges: (..., 4)."""
    x, y, width, height = boxes.unbind(-1)
    corners = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
    return corners.clamp(0, 1)


def load_detector(name: str, size: int | None = None, regions: int | None = None) -> Detector:
    """A pretrained detector by Hugging Face name or folder.

    size: shortest edge of the resized picture, or side of its square; the detector's own where None
    """
    with from_hub(name):
        from transformers import AutoModelForObjectDetection

        settings = read_processor(name)
        model: Any = AutoModelForObjectDetection.from_pretrained(name, dtype=torch.float32)
    square, shortest, longest = _edges(settings, model.config.model_type)
    if size is not None:
        shortest, longest = size, round(longest * size / shortest)
    family = IMAGENET if model.config.model_type not in _SQUARES else ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    mean, std = read_statistics(settings, family)
    resample = int(settings.get("resample", Image.Resampling.BILINEAR))
    multiple = int(model.config.patch_size) if model.config.model_type == "yolos" and not square else 1
    preprocess = DetectorPreprocess(shortest, None if square else longest, mean, std, multiple, resample)
    detector = Detector(name, model.eval(), preprocess, REGIONS if regions is None else regions)
    if square and size is not None:
        try:
            detector.regions([Image.new("RGB", (size, size))])
        except RuntimeError as error:
            raise DiptychError(f"does not work on squares of {size} pixels: {error}", where=name) from None
    return detector


def _edges(settings: Mapping[str, Any], family: str) -> tuple[bool, int, int]:
    """Whether pictures become squares, the shortest edge (or the side), and the longest."""
    size = settings.get("size")
    if isinstance(size, Mapping) and "height" in size:
        return True, int(size["height"]), int(size["height"])
    if isinstance(size, Mapping) and "shortest_edge" in size:
        return False, int(size["shortest_edge"]), int(size.get("longest_edge", 1333))
    if isinstance(size, int):
        return False, size, int(settings.get("max_size", 1333))
    return (True, 640, 640) if family in _SQUARES else (False, 800, 1333)
