"""Pictures to local vectors: precomputed features through a projection, or pixels through a backbone or a tower."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from diptych.common.bounds import check_bounds
from diptych.common.errors import DiptychError
from diptych.data.batches import ImageBatch, LocalFeatures, Masked, Pixels
from diptych.encoders.backbones import Backbone, load_backbone
from diptych.encoders.cells import pool_cells
from diptych.encoders.encoded import Encoded
from diptych.encoders.preprocess import normalise_tensor
from diptych.encoders.sources import is_carried
from diptych.encoders.towers import ImageTower, TowerConfig


@dataclass(frozen=True)
class FeatureConfig:
    """Precomputed local features.

    projection: `linear` is CAMP's, SCAN's and MMCA's one Linear; `residual` is VSE∞'s fc(x) + mlp(x);
    `residual-hidden` is DivE's dropout(h + mlp(h)) with h = fc(x).
    backbone, size, regions: what the features were computed with, so that a new picture's can be computed too;
    regions is for detectors
    cells: side of the grid that a square grid's cells are averaged to
    """

    kind: Literal["features"] = "features"
    feature_dim: int = 2048
    projection: Literal["linear", "residual", "residual-hidden"] = "linear"
    backbone: str | None = None
    size: int = 224
    regions: int | None = None
    cells: int | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "feature_dim", "size", "regions", "cells", low=1)


@dataclass(frozen=True)
class PixelConfig:
    """Pictures through a backbone that is trained along (or frozen), one Linear on its cells.

    backbone: a Hugging Face name or folder, `efficientnet-lite0` … `efficientnet-lite2`, or a file (.pth, .pt,
        .safetensors) with the weights of a ResNet or ResNeXt; style: whose ResNet such a file is
    size: side of the square that the picture is resized to
    fixed_statistics: BatchNorm keeps its running statistics during training
    cells: side of the grid that the backbone's cells are averaged to
    """

    kind: Literal["pixels"] = "pixels"
    backbone: str = "efficientnet-lite0"
    size: int = 224
    style: Literal["torchvision", "detector"] = "torchvision"
    frozen: bool = False
    fixed_statistics: bool = True
    cells: int | None = None

    def __post_init__(self) -> None:
        check_bounds(self, "size", "cells", low=1)


ImageConfig = FeatureConfig | PixelConfig | TowerConfig


def xavier_linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """A Linear with Xavier-uniform weights and bias 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class ResidualMLP(nn.Module):
    """Linear-BatchNorm-ReLU-Linear over local vectors; BatchNorm sees real vectors only, so padding changes nothing."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.bn = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, given: Masked) -> Tensor:
        """(n, k, inputs) -> (n, k, outputs); `given` knows which are real."""
        hidden = self.fc1(x)
        flat = hidden.flatten(0, 1)
        real = given.real if self.training else None
        if real is None:
            normal = self.bn(flat)
        else:
            normed = self.bn(flat.index_select(0, real)).to(flat.dtype)
            normal = torch.zeros_like(flat).index_copy_(0, real, normed)
        normal = normal.to(flat.dtype).view_as(hidden)
        out: Tensor = self.fc2(normal.relu())
        return out


class FeatureEncoder(nn.Module):
    """Precomputed local features to the joint dimension."""

    def __init__(self, config: FeatureConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.fc = xavier_linear(config.feature_dim, dim)
        self.mlp: ResidualMLP | None = None
        if config.projection == "residual":
            self.mlp = ResidualMLP(config.feature_dim, dim // 2, dim)
        elif config.projection == "residual-hidden":
            self.mlp = ResidualMLP(dim, dim // 2, dim)
        self.dropout = nn.Dropout(0.1 if config.projection == "residual-hidden" else 0.0)

    def forward(self, batch: ImageBatch) -> Encoded:
        """(n, regions, f) -> (n, regions, d)."""
        if not isinstance(batch, LocalFeatures):
            raise DiptychError("this matcher was built for local features, and was given pictures; extract them first")
        x = batch.vectors
        if x.shape[-1] != self.config.feature_dim:
            raise DiptychError(f"features have {x.shape[-1]} dimensions; the matcher expects {self.config.feature_dim}")
        # Whatever pads hold, be it not finite, they are nothing.
        x, mask, given = x.masked_fill(~batch.mask.unsqueeze(-1), 0), batch.mask, batch
        if self.config.cells is not None:
            x = pool_cells(x, self.config.cells)
            mask = mask[:, : x.shape[1]]
            given = LocalFeatures(x, mask)
        h = self.fc(x)
        if self.mlp is not None:
            h = self.dropout(h + self.mlp(x if self.config.projection == "residual" else h, given))
        return Encoded(h, mask, None, x)

    @property
    def external(self) -> tuple[str, ...]:
        """All weights are saved."""
        return ()

    def save_assets(self, folder: Path) -> None:
        """Nothing beyond the weights."""


class PixelEncoder(nn.Module):
    """A backbone and one Linear; with `fixed_statistics` its BatchNorm layers stay in eval mode."""

    def __init__(self, config: PixelConfig, dim: int, assets: Path | None) -> None:
        super().__init__()
        self.config = config
        self.backbone: Backbone = load_backbone(
            config.backbone, config.size, None if self.external else assets, config.style
        )
        self.fc = xavier_linear(self.backbone.dim, dim)
        if config.frozen:
            self.backbone.requires_grad_(False)
        self.train()  # frozen parts and fixed statistics are in eval mode from the start

    @property
    def external(self) -> tuple[str, ...]:
        """A frozen backbone that an installed package carries is not saved again."""
        return ("backbone.",) if self.config.frozen and is_carried(self.config.backbone) else ()

    def train(self, mode: bool = True) -> "PixelEncoder":
        """Training mode, but for a frozen backbone and fixed statistics."""
        super().train(mode)
        if self.config.frozen:
            self.backbone.eval()
        elif mode and self.config.fixed_statistics:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def forward(self, batch: ImageBatch) -> Encoded:
        """(n, 3, height, width) -> (n, cells, d)."""
        if not isinstance(batch, Pixels):
            raise DiptychError("this matcher was built for pictures, and was given local features")
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            values = batch.values
            if values.dtype == torch.uint8:
                preprocess = self.backbone.preprocess
                values = normalise_tensor(values, preprocess.mean, preprocess.std)
            cells = self.backbone(values)
            if self.config.cells is not None:
                cells = pool_cells(cells, self.config.cells)
        mask = torch.ones(cells.shape[:2], dtype=torch.bool, device=cells.device)
        return Encoded(self.fc(cells), mask, None, cells)

    def save_assets(self, folder: Path) -> None:
        """What rebuilding the backbone needs besides its weights."""
        self.backbone.save_assets(folder)


ImageEncoder = FeatureEncoder | PixelEncoder | ImageTower


def build_image_encoder(config: ImageConfig, dim: int, assets: Path | None = None) -> ImageEncoder:
    """The image encoder of a configuration; `assets` is a saved matcher's folder, whose weights are loaded later."""
    if isinstance(config, FeatureConfig):
        return FeatureEncoder(config, dim)
    if isinstance(config, TowerConfig):
        return ImageTower(config, dim, assets)
    return PixelEncoder(config, dim, assets)
