import pytest
import torch
from torch import nn

from diptych.encoders.images import PixelConfig, PixelEncoder
from diptych.encoders.quick.folded import fold, run_folded


def encoder(name: str = "efficientnet-lite0", size: int = 64, cells: int | None = None) -> PixelEncoder:
    """One whose BatchNorms do something, in eval mode."""
    made = PixelEncoder(PixelConfig(backbone=name, size=size, cells=cells), 6, None).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            module.running_mean.add_(0.1 * torch.randn_like(module.running_mean))
    return made


@pytest.mark.parametrize(("name", "size"), [("efficientnet-lite0", 70), ("efficientnet-lite2", 97)])
def test_the_last_output_is_the_encoders(name: str, size: int) -> None:
    whole = encoder(name, size)
    blocks = fold(whole)
    assert blocks is not None
    pixels = torch.randn(2, 3, size, size)
    with torch.inference_mode():
        expected = whole.fc(whole.backbone(pixels))
        *_, (_, last) = run_folded(blocks, pixels)
    torch.testing.assert_close(last.flatten(2).transpose(1, 2), expected, atol=2e-4, rtol=2e-4)


def test_the_encoder_keeps_its_own_weights() -> None:
    whole = encoder()
    before = {name: value.clone() for name, value in whole.state_dict().items()}
    blocks = fold(whole)
    assert blocks is not None
    for block in blocks:
        assert not any(c.weight.requires_grad or c.bias.requires_grad for c in block.convolutions)
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())


def test_other_encoders_are_not_folded() -> None:
    assert fold(encoder(cells=1)) is None
