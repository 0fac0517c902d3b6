from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from diptych.common.errors import DiptychError
from diptych.encoders.backbones import load_backbone
from diptych.encoders.huggingface_vision import read_statistics
from tests.encoders.tiny_models import BACKBONES, detr, save, stirred, vit

SPECIAL = {"vit": 1, "dinov2": 1, "dinov2-registers": 4, "clip": 1}  # class and register tokens, which come first


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("vision")
    return {name: save(stirred(make()), root / name) for name, make in BACKBONES.items()}


def expected_cells(folder: str, name: str, pixels: Tensor, interpolate: bool) -> Tensor:
    """From the whole model, by hand."""
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(folder).eval()
    model = model.vision_model if name in ("clip", "siglip") else model
    takes = name in ("vit", "clip", "siglip", "swin") and interpolate
    with torch.no_grad():
        hidden = model(pixel_values=pixels, **{"interpolate_pos_encoding": True} if takes else {}).last_hidden_state
    if hidden.ndim == 3:
        return hidden[:, SPECIAL.get(name, 0) :]
    return torch.stack([hidden[:, :, y, x] for y in range(hidden.shape[2]) for x in range(hidden.shape[3])], 1)


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("name", BACKBONES)
def test_cells_are_the_feature_map_or_the_patch_tokens(folders: dict[str, str], name: str, size: int) -> None:
    backbone = load_backbone(folders[name], size).eval()
    pixels = torch.randn(2, 3, size, size)
    with torch.no_grad():
        cells = backbone(pixels)
    expected = expected_cells(folders[name], name, pixels, size != 32)
    assert cells.shape == (2, backbone.grid[0] * backbone.grid[1], backbone.dim)
    torch.testing.assert_close(cells, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", BACKBONES)
def test_rebuilt_from_assets_without_weights_or_the_first_folder(
    folders: dict[str, str], name: str, tmp_path: Path
) -> None:
    first = load_backbone(folders[name], 32).eval()
    first.save_assets(tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    again = load_backbone("no-longer-there", 32, assets=tmp_path).eval()
    again.load_state_dict(first.state_dict())  # strict: not one weight more or less
    pixels = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(first(pixels), again(pixels))
    assert again.preprocess == first.preprocess


@pytest.mark.parametrize("name", BACKBONES)
def test_every_trained_parameter_gets_a_gradient(folders: dict[str, str], name: str) -> None:
    backbone = load_backbone(folders[name], 32)
    backbone(torch.randn(2, 3, 32, 32)).square().sum().backward()
    trained = [(n, p) for n, p in backbone.named_parameters() if p.requires_grad]
    assert len(trained) > 5
    assert [n for n, p in trained if p.grad is None] == []
    unused = {n for n, p in backbone.named_parameters() if not p.requires_grad}
    assert unused <= {"model.embeddings.mask_token"}


def test_one_cell_sees_its_own_place(folders: dict[str, str]) -> None:
    # A convolution's cell depends on the pixels around it only: the order of cells is the picture's.
    backbone = load_backbone(folders["convnext"], 128).eval()
    rows, columns = backbone.grid
    pixels = torch.zeros(1, 3, 128, 128)
    changed = pixels.clone()
    changed[:, :, 5, 125] = 9.0  # top right
    with torch.no_grad():
        moved = (backbone(pixels) - backbone(changed)).abs().sum(-1)[0]
    assert int(moved.argmax()) == columns - 1
    assert moved[(rows - 1) * columns] == 0


def test_statistics_size_and_filter_come_from_the_folder(tmp_path: Path) -> None:
    settings = {
        "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "size": {"shortest_edge": 36},
        "crop_size": {"height": 32, "width": 32}, "resample": 2,
    }  # fmt: skip
    found = load_backbone(save(vit(), tmp_path, settings)).preprocess
    assert (found.size, found.resample) == (32, Image.Resampling.BILINEAR)
    assert found.mean == pytest.approx((0.1, 0.2, 0.3))
    assert found.std == pytest.approx((0.4, 0.5, 0.6))


@pytest.mark.parametrize(
    ("name", "mean"), [("vit", 0.5), ("siglip", 0.5), ("clip", 0.48145466), ("resnet", 0.485), ("dinov2", 0.485)]
)
def test_statistics_of_the_family_where_the_folder_says_nothing(
    folders: dict[str, str], name: str, mean: float
) -> None:
    assert load_backbone(folders[name], 32).preprocess.mean[0] == pytest.approx(mean)


def test_statistics_follow_what_the_processor_does() -> None:
    default = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    assert read_statistics({"do_normalize": False}, default) == ((0, 0, 0), (1, 1, 1))
    # (255 x - 100) / 50 is (x - 100 / 255) / (50 / 255)
    mean, std = read_statistics({"do_rescale": False, "image_mean": [100] * 3, "image_std": [50] * 3}, default)
    assert mean == pytest.approx((100 / 255,) * 3)
    assert std == pytest.approx((50 / 255,) * 3)
    with pytest.raises(DiptychError, match="image_mean: expected three numbers"):
        read_statistics({"image_mean": [1], "image_std": [1]}, default)


def test_a_size_that_the_architecture_does_not_allow_is_refused(tmp_path: Path) -> None:
    from transformers import LevitConfig, LevitModel

    config = LevitConfig(
        image_size=32, hidden_sizes=[8, 8, 8], num_attention_heads=[2, 2, 2], key_dim=[4, 4, 4], depths=[1, 1, 1]
    )
    folder = save(LevitModel(config), tmp_path)
    with pytest.raises(DiptychError, match="does not work at 64 pixels, its own size is 32"):
        load_backbone(folder, 64)


def test_texts_and_detectors_are_no_backbones(tiny_bert: str, tmp_path: Path) -> None:
    with pytest.raises(DiptychError, match="a bert model does not take pictures"):
        load_backbone(tiny_bert)
    with pytest.raises(DiptychError, match="a detector"):
        load_backbone(save(detr(), tmp_path))


def test_batch_norm_is_found_where_statistics_must_stay_fixed(folders: dict[str, str]) -> None:
    backbone = load_backbone(folders["resnet"], 32)
    assert any(isinstance(m, nn.BatchNorm2d) for m in backbone.modules())
