from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures, Pixels
from diptych.encoders.images import (
    FeatureConfig,
    FeatureEncoder,
    PixelConfig,
    PixelEncoder,
    build_image_encoder,
    xavier_linear,
)
from tests.encoders.tiny_models import resnet, save, stirred

COUNTS = [3, 1, 5]
LINEAR, RESIDUAL, HIDDEN = (
    FeatureConfig(feature_dim=6, projection=p) for p in ("linear", "residual", "residual-hidden")
)


def batch(extra: int = 0, garbage: float = 50.0) -> LocalFeatures:
    vectors = torch.full((3, 5 + extra, 6), garbage)
    mask = torch.zeros(3, 5 + extra, dtype=torch.bool)
    generator = torch.Generator().manual_seed(1)
    for i, count in enumerate(COUNTS):
        vectors[i, :count] = torch.randn(count, 6, generator=generator)
        mask[i, :count] = True
    return LocalFeatures(vectors, mask)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    rows = [sum(layer.weight[o, i] * x[i] for i in range(len(x))) + layer.bias[o] for o in range(len(layer.weight))]
    return torch.stack(rows)


def mlp(encoder: FeatureEncoder, x: Tensor) -> Tensor:
    """Linear, BatchNorm with its running statistics, ReLU, Linear, for one vector."""
    assert encoder.mlp is not None
    bn, h = encoder.mlp.bn, linear(encoder.mlp.fc1, x)
    assert bn.running_mean is not None
    assert bn.running_var is not None
    normal = (h - bn.running_mean) / (bn.running_var + bn.eps).sqrt() * bn.weight + bn.bias
    return linear(encoder.mlp.fc2, normal.clamp(min=0))


def moved(encoder: FeatureEncoder) -> FeatureEncoder:
    """With running statistics and weights that are not those of the start."""
    stirred(encoder)
    if encoder.mlp is not None and encoder.mlp.bn.running_mean is not None and encoder.mlp.bn.running_var is not None:
        encoder.mlp.bn.running_mean.uniform_(-1, 1)
        encoder.mlp.bn.running_var.uniform_(0.5, 2)
    return encoder


@pytest.mark.parametrize("config", [LINEAR, RESIDUAL, HIDDEN], ids=lambda c: c.projection)
def test_projections_are_the_papers_formulas(config: FeatureConfig) -> None:
    encoder = moved(FeatureEncoder(config, 8))
    features = batch()
    with torch.no_grad():
        out = encoder(features)
        for i, count in enumerate(COUNTS):
            for k in range(count):
                x = features.vectors[i, k]
                expected = h = linear(encoder.fc, x)
                if config.projection == "residual":  # VSE∞: fc(x) + mlp(x)
                    expected = h + mlp(encoder, x)
                elif config.projection == "residual-hidden":  # DivE: h + mlp(h), h = fc(x)
                    expected = h + mlp(encoder, h)
                torch.testing.assert_close(out.vectors[i, k], expected, atol=1e-5, rtol=1e-4)
    assert out.whole is None
    assert torch.equal(out.inputs[features.mask], features.vectors[features.mask])
    assert not out.inputs[~features.mask].any()  # whatever pads hold
    assert torch.equal(out.mask, features.mask)


@pytest.mark.parametrize("config", [RESIDUAL, HIDDEN], ids=lambda c: c.projection)
def test_padding_changes_neither_the_statistics_nor_the_result(config: FeatureConfig) -> None:
    outcomes = []
    for extra, garbage in ((0, 50.0), (4, -900.0)):
        torch.manual_seed(0)
        encoder = FeatureEncoder(config, 8).train()
        encoder.dropout.p = 0.0
        features = batch(extra, garbage)
        vectors = encoder(features).vectors[features.mask]
        assert encoder.mlp is not None
        outcomes.append((vectors, encoder.mlp.bn.running_mean, encoder.mlp.bn.running_var))
    for first, second in zip(*outcomes, strict=True):
        torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)


def test_dropout_is_only_in_dives_projection_and_only_in_training() -> None:
    features = batch()
    for config, drops in ((LINEAR, False), (RESIDUAL, False), (HIDDEN, True)):
        encoder = FeatureEncoder(config, 64).train()
        zeros = (encoder(features).vectors[features.mask] == 0).float().mean()
        assert (zeros > 0.02) == drops
        assert (encoder.eval()(features).vectors[features.mask] != 0).all()


def test_xavier_weights_and_no_bias_at_the_start() -> None:
    layer = xavier_linear(300, 200)
    bound = (6 / 500) ** 0.5
    assert bound * 0.99 < float(layer.weight.detach().abs().max()) <= bound
    assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.02)
    assert layer.bias.tolist() == [0.0] * 200


def test_what_does_not_fit_is_told() -> None:
    encoder = FeatureEncoder(LINEAR, 8)
    with pytest.raises(DiptychError, match="features have 5 dimensions; the matcher expects 6"):
        encoder(LocalFeatures(torch.zeros(1, 2, 5), torch.ones(1, 2, dtype=torch.bool)))
    with pytest.raises(DiptychError, match="was given pictures"):
        encoder(Pixels(torch.zeros(1, 3, 4, 4)))


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return save(stirred(resnet()), tmp_path_factory.mktemp("resnet"))


def pixel_encoder(cnn: str, **changes: bool) -> PixelEncoder:
    encoder = build_image_encoder(PixelConfig(backbone=cnn, size=32, **changes), 8)
    assert isinstance(encoder, PixelEncoder)
    return encoder


def statistics(encoder: PixelEncoder) -> Tensor:
    norms = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm2d)]
    return torch.cat([torch.cat([m.running_mean, m.running_var]) for m in norms if m.running_var is not None]).clone()  # type: ignore[list-item]


def test_pixels_through_the_backbone_and_one_linear(cnn: str) -> None:
    encoder = pixel_encoder(cnn).eval()
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        out = encoder(Pixels(pixels))
        cells = encoder.backbone(pixels)
    torch.testing.assert_close(out.vectors, encoder.fc(cells))
    assert out.mask.all()
    assert out.vectors.shape == (2, 16, 8)
    with pytest.raises(DiptychError, match="was given local features"):
        encoder(batch())


def test_uint8_pixels_are_normalised_by_the_encoder(cnn: str) -> None:
    encoder = pixel_encoder(cnn).eval()
    values = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    preprocess = encoder.backbone.preprocess
    by_hand = (values / 255 - torch.tensor(preprocess.mean)) / torch.tensor(preprocess.std)
    with torch.no_grad():
        found, expected = encoder(Pixels(values)), encoder(Pixels(by_hand.permute(0, 3, 1, 2)))
    torch.testing.assert_close(found.vectors, expected.vectors, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("fixed", "frozen"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("called", [True, False])
def test_fixed_and_frozen_backbones_keep_their_statistics(cnn: str, fixed: bool, frozen: bool, called: bool) -> None:
    encoder = pixel_encoder(cnn, fixed_statistics=fixed, frozen=frozen)
    if called:
        encoder.eval()
        encoder.train()
    before = statistics(encoder)
    encoder(Pixels(torch.randn(4, 3, 32, 32)))
    assert torch.equal(statistics(encoder), before) == (fixed or frozen)
    encoder.eval()
    assert not any(m.training for m in encoder.modules())


def test_a_frozen_backbone_gets_no_gradient_and_the_linear_does(cnn: str) -> None:
    encoder = pixel_encoder(cnn, frozen=True)
    encoder(Pixels(torch.randn(2, 3, 32, 32))).vectors.sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in encoder.backbone.parameters())
    assert encoder.fc.weight.grad is not None
    assert not encoder.backbone.training


def test_a_tuned_backbone_gets_gradients_with_fixed_statistics(cnn: str) -> None:
    encoder = pixel_encoder(cnn)
    encoder(Pixels(torch.randn(2, 3, 32, 32))).vectors.square().sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())


def test_rebuilt_from_assets(cnn: str, tmp_path: Path) -> None:
    first = pixel_encoder(cnn).eval()
    first.save_assets(tmp_path)
    again = build_image_encoder(PixelConfig(backbone="gone", size=32), 8, tmp_path).eval()
    again.load_state_dict(first.state_dict())
    pixels = Pixels(torch.randn(1, 3, 32, 32))
    with torch.no_grad():
        assert torch.equal(first(pixels).vectors, again(pixels).vectors)
