"""What a matcher keeps of pictures or sentences: batch-first tensors that behave like one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside


def kept(*local: int) -> Any:
    """A tensor field of a `Kept`; `local` names its dimensions that run over the k vectors and are padded together."""
    return field(metadata={"local": local})


@dataclass(frozen=True)
class Kept:
    """n items, each with up to k vectors.

    vectors: (n, k, d)
    mask: (n, k), True where a vector is real

    A matcher that computes more once per side adds fields: `gram: Tensor = kept(1, 2)` for an (n, k, k) tensor,
    `whole: Tensor = kept()` for an (n, d) one.
    """

    vectors: Tensor = kept(1)
    mask: Tensor = kept(1)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def lengths(self) -> Tensor:
        """Real vectors of each item: (n,)."""
        return self.mask.sum(1)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.vectors.device

    def __getitem__(self, which: slice | Tensor | Sequence[int]) -> Self:
        """The items of a slice, a list of positions, or a tensor of positions or booleans."""
        if not isinstance(which, slice | Tensor):
            which = torch.tensor(list(which), dtype=torch.long, device=self.device)
        return type(self)(**{name: tensor[which] for name, tensor in self.tensors().items()})

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """On another device, or with another float type (masks and integers stay what they are)."""
        return type(self)(
            **{
                name: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
                for name, tensor in self.tensors().items()
            }
        )

    def detach(self) -> Self:
        """Cut off from the graph."""
        return type(self)(**{name: tensor.detach() for name, tensor in self.tensors().items()})

    def resize(self, k: int) -> Self:
        """Padded, or cut, to k vectors an item; real vectors must fit and come first."""
        if k < self.mask.shape[1] and bool(self.mask[:, k:].any()):
            raise ValueError(f"cannot cut to {k} vectors: an item has more")
        changed = {}
        for f in fields(self):
            tensor: Tensor = getattr(self, f.name)
            for dim in f.metadata["local"]:
                missing = k - tensor.shape[dim]
                if missing < 0:
                    tensor = tensor.narrow(dim, 0, k)
                elif missing > 0:
                    after = [0] * (2 * (tensor.dim() - dim))
                    after[-1] = missing
                    tensor = F.pad(tensor, after)
            changed[f.name] = tensor
        return type(self)(**changed)

    def trim(self) -> Self:
        """Without the padding that no item needs."""
        real = self.mask.any(0).nonzero()
        return self.resize(max(1, int(real.max()) + 1 if len(real) else 1))

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """All items of several parts in order, padded to the largest k."""
        k = max(part.mask.shape[1] for part in parts)
        resized = [part.resize(k) for part in parts]
        return type(parts[0])(
            **{name: torch.cat([part.tensors()[name] for part in resized]) for name in parts[0].tensors()}
        )

    def save(self, path: Path) -> None:
        """One safetensors file."""
        with written_aside(path) as aside:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors().items()}
            save_file(tensors, aside, {"kept": json.dumps(sorted(tensors))})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; the file must hold exactly this type's tensors."""
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            expected = {f.name for f in fields(cls)}
            if names != expected:
                raise DiptychError(f"holds {sorted(names)}; expected {sorted(expected)}", where=path)
            return cls(**{name: file.get_tensor(name) for name in names})
