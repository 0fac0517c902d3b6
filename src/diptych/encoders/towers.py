"""The two towers of CLIP, SigLIP and their kin of Hugging Face: one encoder a side, into the space that they share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diptych.common.bounds import check_bounds
from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.common.hub import from_hub
from diptych.data.batches import ImageBatch, Pixels, Tokens
from diptych.data.feature_file import cell_boxes
from diptych.encoders.backbones import Backbone, Size
from diptych.encoders.encoded import Encoded
from diptych.encoders.huggingface_vision import CLIP, HALVES, read_processor
from diptych.encoders.preprocess import normalise_tensor
from diptych.encoders.tower_preprocess import TowerPreprocess

ASSETS = "towers"  # the folder of a saved matcher that holds what rebuilding both towers needs


@dataclass(frozen=True)
class TowerConfig:
    """One tower of a model that embeds pictures and sentences; the joint dimension is the model's own.

    name: a folder or hub name of Hugging Face; frozen: not trained, and in eval mode
    limit: most pieces of a sentence, special ones included; the model's own where none is given
    """

    name: str
    kind: Literal["tower"] = "tower"
    frozen: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "limit", low=3)


class VisionTower(Backbone):
    """A picture's patch tokens, and the one vector that the model makes of the picture."""

    preprocess: TowerPreprocess

    def __init__(self, model: Any, preprocess: TowerPreprocess) -> None:
        super().__init__()
        self.model: Any = model.vision_model
        self.projection: Any = getattr(model, "visual_projection", None)
        self.preprocess = preprocess
        self.size = preprocess.size
        config = model.config.vision_config
        side = int(config.image_size) // int(config.patch_size)
        self.grid = (side, side)
        self.dim = int(config.hidden_size)

    def forward(self, pixels: Tensor) -> Tensor:
        """(n, 3, height, width) -> (n, patches, width of the tower)."""
        return self.both(pixels)[0]

    def both(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Patch tokens (n, patches, width), and the vector of each picture (n, d)."""
        output = self.model(pixel_values=pixels)
        patches = output.last_hidden_state[:, -self.grid[0] * self.grid[1] :]
        return patches, self.project(output.pooler_output)

    def normalise(self, patches: Tensor) -> Tensor:
        """As the model normalises the state that it makes its own vector of, where it projects one."""
        norm = getattr(self.model, "post_layernorm", None)
        return patches if norm is None or self.projection is None else norm(patches)

    def project(self, states: Tensor) -> Tensor:
        """Into the space that both towers share: (..., width) -> (..., d)."""
        return states if self.projection is None else self.projection(states)

    def boxes(self, size: Size) -> np.ndarray:
        """The part of a picture (width, height) that each patch covers: (patches, 4)."""
        x0, y0, x1, y1 = self.preprocess.frame(size)
        inside = cell_boxes(self.grid, (1, 1)) * np.array([x1 - x0, y1 - y0] * 2, np.float32)
        whole = inside + np.array([x0, y0] * 2, np.float32)
        return whole.clip(0, np.array([*size, *size], np.float32)).astype(np.float32)

    def save_assets(self, folder: Path) -> None:
        """Written by the image tower, for both."""


class ImageTower(nn.Module):
    """Pictures through a vision tower: patch tokens in the joint space, and the picture's own vector as `whole`."""

    def __init__(self, config: TowerConfig, dim: int, assets: Path | None) -> None:
        super().__init__()
        self.config = config
        model, preprocess = load_towers(config.name, assets)
        self.settings = model.config
        self.backbone = VisionTower(model, preprocess)
        check_width(config.name, self.backbone.both(torch.zeros(1, 3, *preprocess.seen))[1], dim)
        if config.frozen:
            self.backbone.requires_grad_(False).eval()

    @property
    def external(self) -> tuple[str, ...]:
        """All weights are saved."""
        return ()

    def train(self, mode: bool = True) -> "ImageTower":
        """Training mode, but for a frozen tower."""
        super().train(mode)
        if self.config.frozen:
            self.backbone.eval()
        return self

    def forward(self, batch: ImageBatch) -> Encoded:
        """(n, height, width, 3) -> (n, patches, d)."""
        if not isinstance(batch, Pixels):
            raise DiptychError("this matcher was built for pictures, and was given local features")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            values = batch.values
            if values.dtype == torch.uint8:
                values = normalise_tensor(values, self.backbone.preprocess.mean, self.backbone.preprocess.std)
            patches, whole = self.backbone.both(values.contiguous())
            # CLIP's own vector is made of a normalised state; a patch is brought into the space in the same way.
            norm = (
                getattr(self.backbone.model, "post_layernorm", None) if self.backbone.projection is not None else None
            )
            vectors = self.backbone.project(patches if norm is None else norm(patches))
        mask = torch.ones(patches.shape[:2], dtype=torch.bool, device=patches.device)
        return Encoded(vectors, mask, whole, patches)

    def save_assets(self, folder: Path) -> None:
        """The whole model's config.json, and how pictures are prepared."""
        folder = folder / ASSETS
        self.settings.save_pretrained(str(folder))
        p = self.backbone.preprocess
        names = ("size", "mean", "std", "resample", "edges", "crop")
        write_json(folder / "preprocess.json", {name: getattr(p, name) for name in names})


class TextTower(nn.Module):
    """Sentences through a text tower: word tokens in the joint space, and the sentence's own vector as `whole`."""

    def __init__(self, config: TowerConfig, dim: int, assets: Path | None) -> None:
        super().__init__()
        self.config = config
        model, _ = load_towers(config.name, assets)
        settings = model.config.text_config
        self.backbone: Any = model.text_model
        self.projection: Any = getattr(model, "text_projection", None)
        self.pad_id = int(getattr(settings, "pad_token_id", None) or 0)
        # SigLIP was trained on sentences padded to full length, and does not mask the padding.
        self.full_length = int(settings.max_position_embeddings) if "siglip" in model.config.model_type else None
        if config.frozen:
            self.requires_grad_(False)
        self.train()

    @property
    def external(self) -> tuple[str, ...]:
        """All weights are saved."""
        return ()

    def train(self, mode: bool = True) -> "TextTower":
        """Training mode, but for a frozen tower."""
        super().train(mode and not self.config.frozen)
        return self

    def forward(self, batch: Tokens) -> Encoded:
        """(n, pieces) -> (n, pieces, d)."""
        length = int(batch.lengths.max())
        ids = batch.ids.masked_fill(~batch.mask, self.pad_id)[:, :length]
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            if self.full_length is None:
                output = self.backbone(input_ids=ids, attention_mask=batch.mask[:, :length].to(torch.long))
            else:
                output = self.backbone(input_ids=F.pad(ids, (0, self.full_length - length), value=self.pad_id))
            states = output.last_hidden_state[:, :length]
            whole = output.pooler_output if output.pooler_output is not None else output.last_hidden_state[:, 0]
            states = F.pad(states, (0, 0, 0, batch.ids.shape[1] - length))
            return Encoded(self._project(states), batch.mask, self._project(whole, pooled=True), states)

    def _project(self, states: Tensor, pooled: bool = False) -> Tensor:
        # SigLIP's last Linear is the text model's own head, through which its vector has gone already.
        last = self.projection
        if last is None and not pooled:
            last = getattr(self.backbone, "head", None)
        return states if last is None else last(states)

    def save_assets(self, folder: Path) -> None:
        """Written by the image tower, for both."""


def load_towers(name: str, assets: Path | None) -> tuple[Any, TowerPreprocess]:
    """A model with both towers, and how it prepares pictures; with `assets`, its architecture alone."""
    if assets is not None:
        from transformers import AutoConfig, AutoModel

        folder = assets / ASSETS
        with from_hub(folder, "a saved model"):
            saved = read_json(folder / "preprocess.json")
            for field in ("mean", "std", "edges", "crop"):
                saved[field] = tuple(saved[field]) if isinstance(saved[field], list) else saved[field]
            return AutoModel.from_config(AutoConfig.from_pretrained(str(folder))), TowerPreprocess(**saved)
    with from_hub(name):
        from transformers import AutoModel

        settings = read_processor(name)
        model: Any = AutoModel.from_pretrained(name, dtype=torch.float32).eval()
    if not all(isinstance(getattr(model, part, None), nn.Module) for part in ("vision_model", "text_model")):
        raise DiptychError(f"a {model.config.model_type} model does not embed pictures and sentences", where=name)
    side = model.config.vision_config.image_size
    if not isinstance(side, int):
        raise DiptychError("its pictures have no fixed size; such a model cannot be used", where=name)
    family = HALVES if "siglip" in model.config.model_type else CLIP
    return model, TowerPreprocess.read(settings, side, family)


def token_limit(name: str, assets: Path | None = None) -> int:
    """The most pieces that a sentence may have for the text tower of a model."""
    return int(_read_config(name, assets).text_config.max_position_embeddings)


def joint_dimension(name: str) -> int:
    """The dimension of the space that both towers of a model share."""
    config = _read_config(name)
    dim = getattr(config, "projection_dim", None) or getattr(
        getattr(config, "vision_config", None), "hidden_size", None
    )
    if not isinstance(dim, int) or not hasattr(config, "text_config"):
        raise DiptychError(f"a {config.model_type} model does not embed pictures and sentences", where=name)
    return dim


def is_hugging_face(name: str) -> bool:
    """Whether a folder or a name of the hub is a model of Hugging Face transformers, by its config.json."""
    folder = Path(name)
    if folder.is_dir():
        path = folder / "config.json"
        tree = read_json(path) if path.is_file() else None
        return isinstance(tree, dict) and "model_type" in tree
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        return False
    try:
        from transformers import PretrainedConfig

        with from_hub(name):
            return "model_type" in PretrainedConfig.get_config_dict(name)[0]
    except (ImportError, DiptychError):
        return False  # whoever downloads it will say what is wrong


def _read_config(name: str, assets: Path | None = None) -> Any:
    with from_hub(name):
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(name if assets is None else str(assets / ASSETS))


def check_width(name: str, vectors: Tensor, dim: int) -> None:
    """The joint dimension is the model's own."""
    if vectors.shape[-1] != dim:
        raise DiptychError(f"dim: the vectors of {name} have {vectors.shape[-1]} dimensions; got {dim}")
