"""A running average of the weights: what is evaluated and kept, while the raw weights go on training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Exponential moving average of a module's floating-point state.

    The decay rises from 0 towards its final value, min(decay, (1 + t) / (10 + t)), so that early steps do not linger.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module = module
        self.decay = decay
        self.steps = 0
        self.state = {name: tensor.detach().clone() for name, tensor in self._floats()}

    def _floats(self) -> Iterator[tuple[str, Tensor]]:
        trained = {name for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        buffers = {name for name, _ in self.module.named_buffers()}
        for name, tensor in self.module.state_dict().items():
            if tensor.is_floating_point() and (name in trained or name in buffers):
                yield name, tensor

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after one more step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        names, current = zip(*self._floats(), strict=True)
        torch._foreach_lerp_([self.state[name] for name in names], list(current), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the averaged weights; the raw ones come back afterwards."""
        raw = {name: tensor.detach().clone() for name, tensor in self._floats()}
        self._fill(self.state)
        try:
            yield
        finally:
            self._fill(raw)

    @torch.no_grad()
    def _fill(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self._floats():
            tensor.copy_(state[name])

    def raw(self) -> dict[str, Tensor]:
        """The weights that training goes on from, for a checkpoint whose model holds the average."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self._floats()}

    def restore(self, raw: dict[str, Tensor], steps: int) -> None:
        """Go on from a checkpoint: the module holds the average, `raw` what it was averaged from."""
        self.state = {name: tensor.detach().clone() for name, tensor in self._floats()}
        self.steps = steps
        self._fill(raw)
