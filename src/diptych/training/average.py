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
        self._live = self._floats()
        self.state = {name: tensor.detach().clone() for name, tensor in self._live.items()}

    def _floats(self) -> dict[str, Tensor]:
        """The module's own tensors, which training changes in place: found once, since a step is short."""
        live = {name: parameter for name, parameter in self.module.named_parameters() if parameter.requires_grad}
        buffers = dict(self.module.named_buffers())
        saved = self.module.state_dict()
        return {name: t for name, t in {**live, **buffers}.items() if name in saved and t.is_floating_point()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after one more step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_([self.state[name] for name in self._live], list(self._live.values()), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the averaged weights; the raw ones come back afterwards."""
        raw = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        self._fill(self.state)
        try:
            yield
        finally:
            self._fill(raw)

    @torch.no_grad()
    def _fill(self, state: dict[str, Tensor]) -> None:
        for name, tensor in self._live.items():
            tensor.copy_(state[name])

    def raw(self) -> dict[str, Tensor]:
        """The weights that training goes on from, for a checkpoint whose model holds the average."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self._live.items()}

    def restore(self, raw: dict[str, Tensor], steps: int) -> None:
        """Go on from a checkpoint: the module holds the average, `raw` what it was averaged from."""
        self.state = {name: tensor.detach().clone() for name, tensor in self._live.items()}
        self.steps = steps
        self._fill(raw)
