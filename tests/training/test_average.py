import torch
from torch import nn

from diptych.training.average import WeightAverage


def test_the_average_follows_the_modules_own_tensors() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    module[0].bias.requires_grad_(False)
    average = WeightAverage(module, 0.5)
    expected = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    for step in (1, 2, 3):
        optimiser.zero_grad()
        module(torch.randn(5, 3)).square().sum().backward()
        optimiser.step()
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                expected[name] = decay * expected[name] + (1 - decay) * tensor
    assert set(average.state) == {"0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"}
    for name, tensor in average.state.items():
        torch.testing.assert_close(tensor, expected[name])
    raw = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with average.in_place():
        torch.testing.assert_close(module.state_dict()["0.weight"], expected["0.weight"])
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, raw[name])
