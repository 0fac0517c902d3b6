"""What a matcher keeps of pictures or sentences: batch-first tensors that behave like one."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
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


def all_real(mask: Tensor) -> bool:
    """Whether it is known that nothing is padding; a GPU is not asked, for everything would wait for its answer."""
    return mask.device.type == "cpu" and bool(mask.all())


def _writes(tensor: Tensor) -> int | None:
    """How often a tensor was written to; None where that is not counted."""
    return None if tensor.is_inference() else tensor._version


def _of_length(tensor: Tensor, local: Sequence[int], k: int) -> Tensor:
    """Padded with zeros, or cut, to k along the dimensions of local vectors."""
    for dim in local:
        missing = k - tensor.shape[dim]
        if missing < 0:
            tensor = tensor.narrow(dim, 0, k)
        elif missing > 0:
            after = [0] * (2 * (tensor.dim() - dim))
            after[-1] = missing
            tensor = F.pad(tensor, after)
    return tensor


@dataclass(frozen=True)
class Kept:
    """n items, each with up to k vectors.

    vectors: (n, k, d)
    mask: (n, k), True where a vector is real

    A matcher that computes more once per side adds fields: `gram: Tensor = kept(1, 2)` for an (n, k, k) tensor,
    `whole: Tensor = kept()` for an (n, d) one.

    >>> images = matcher.encode_images(["dog.png", "boat.png", "cat.png"])
    >>> len(images[:2]), len(Kept.cat([images, images])), len(images[[2, 0]])
    (2, 6, 2)
    >>> images[0]
    Kept(1 item, 1 vector of 8 numbers, float32 on cpu)
    >>> np.asarray(images).shape
    (3, 1, 8)
    """

    vectors: Tensor = kept(1)
    mask: Tensor = kept(1)

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Kept.__repr__  # type: ignore[method-assign]  # else `dataclass` writes one of all numbers

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name.

        >>> list(images.tensors())
        ['vectors', 'mask']
        """
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __len__(self) -> int:
        return self.vectors.shape[0]  # much quicker than a tensor's len

    @property
    def lengths(self) -> Tensor:
        """Real vectors of each item: (n,).

        >>> images.lengths
        tensor([1, 1, 1])
        """
        return self.mask.sum(1)

    @property
    def extents(self) -> Tensor:
        """Vectors of each item up to its last real one, at least 1: (n,), in main memory, and not to be written to.

        >>> images.resize(4).extents
        tensor([1, 1, 1])
        """
        # Told once: a GPU is waited for, and a side of an index meets many queries. Until the mask is written to.
        before, told = self.__dict__.get("_extents", (None, None))
        if told is None or before != _writes(self.mask):
            if self.mask.shape[1] == 1:
                told = torch.ones(len(self), dtype=torch.int64)
            else:
                places = torch.arange(1, self.mask.shape[1] + 1, dtype=torch.int32, device=self.mask.device)
                told = (self.mask * places).amax(1).clamp(min=1).cpu().long()
            self._tell_extents(told)
        extents: Tensor = told
        return extents

    def __getstate__(self) -> dict[str, Tensor]:
        return self.tensors()  # a copy's mask counts from where it likes

    def _tell_extents(self, extents: Tensor) -> None:
        object.__setattr__(self, "_extents", (_writes(self.mask), extents))

    @property
    def device(self) -> torch.device:
        """Where the tensors are.

        >>> images.device
        device(type='cpu')
        """
        return self.vectors.device

    def __getitem__(self, which: int | slice | Tensor | np.ndarray | Sequence[int] | Sequence[bool]) -> Self:
        """The items of a position, a slice, or several positions or booleans; one item is a `Kept` of one."""
        chosen: slice | Tensor
        if isinstance(which, slice) and which.indices(len(self)) == (0, len(self), 1):
            return self
        if isinstance(which, slice | Tensor) and not (isinstance(which, Tensor) and which.ndim == 0):
            chosen = which
        elif hasattr(which, "__index__") and np.ndim(which) == 0:
            place = index(which)
            if not -len(self) <= place < len(self):
                raise IndexError(f"item {place} of {len(self)}")
            place %= len(self)
            chosen = slice(place, place + 1)
        else:
            several = np.asarray(which)
            chosen = torch.from_numpy(several if several.size else several.astype(np.int64)).to(self.device)
        some = type(self)(**{name: tensor[chosen] for name, tensor in self.tensors().items()})
        if "_extents" in self.__dict__ and (isinstance(chosen, slice) or chosen.device.type == "cpu"):
            some._tell_extents(self.extents[chosen])
        return some

    def __iter__(self) -> Iterator[Self]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        n = len(self)
        least, most = map(int, self.lengths.aminmax()) if n else (0, 0)
        each = f"{most}" if least == most else f"{least} to {most}"
        each += " vector" if most == 1 else " vectors"
        kind = str(self.vectors.dtype).removeprefix("torch.")
        told = f"{n:,} item{'' if n == 1 else 's'}, {each} of {self.vectors.shape[-1]} numbers, {kind} on {self.device}"
        return f"{type(self).__name__}({told})"

    def numpy(self) -> np.ndarray:
        """The vectors as a float32 array (n, k, d) in main memory, 0 at pads; `np.asarray` gives the same.

        >>> images.numpy().shape
        (3, 1, 8)
        """
        vectors = self.vectors.detach().to("cpu", torch.float32)
        return vectors.masked_fill(~self.mask.cpu().unsqueeze(-1), 0).numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("what is kept becomes an array by a copy only")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """On another device, or with another float type (masks and integers stay what they are).

        >>> images.to("cpu", torch.float16).vectors.dtype
        torch.float16
        """
        return self._with(
            {
                name: tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
                for name, tensor in self.tensors().items()
            }
        )

    def contiguous(self) -> Self:
        """Laid out item by item without gaps, as kernels read it; what was cut is not.

        >>> images.resize(4).cut(2).contiguous().vectors.is_contiguous()
        True
        """
        return self._with({name: tensor.contiguous() for name, tensor in self.tensors().items()})

    def detach(self) -> Self:
        """Cut off from the graph.

        >>> images.detach().vectors.requires_grad
        False
        """
        return type(self)(**{name: tensor.detach() for name, tensor in self.tensors().items()})

    def resize(self, k: int) -> Self:
        """Padded, or cut, to k vectors an item; real vectors must fit and come first.

        >>> images.resize(4).mask.shape
        torch.Size([3, 4])
        """
        if k < self.mask.shape[1] and bool(self.mask[:, k:].any()):
            raise ValueError(f"cannot cut to {k} vectors: an item has more")
        return self.cut(k)

    def cut(self, k: int) -> Self:
        """As `resize`, of items that are known to fit: nothing is looked at, so no device is waited for.

        >>> images.resize(4).cut(1).mask.shape
        torch.Size([3, 1])
        """
        if k == self.mask.shape[1]:
            return self
        return self._with({f.name: _of_length(getattr(self, f.name), f.metadata["local"], k) for f in fields(self)})

    def _with(self, tensors: dict[str, Tensor]) -> Self:
        """Other tensors, all of them; itself where they are the same."""
        if all(tensor is getattr(self, name) for name, tensor in tensors.items()):
            return self
        return type(self)(**tensors)

    def trim(self) -> Self:
        """Without the padding that no item needs.

        >>> images.resize(4).trim().mask.shape
        torch.Size([3, 1])
        """
        real = self.mask.any(0).nonzero()
        return self.resize(max(1, int(real.max()) + 1 if len(real) else 1))

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """All items of several parts in order, padded to the largest k.

        >>> len(Kept.cat([images, images[:1]]))
        4
        """
        if len(parts) == 1:
            return parts[0]
        k, whole = max(part.mask.shape[1] for part in parts), {}
        for f in fields(parts[0]):  # one at a time, so that padded copies of all of them are never there together
            whole[f.name] = torch.cat([_of_length(getattr(part, f.name), f.metadata["local"], k) for part in parts])
        return type(parts[0])(**whole)

    def save(self, path: Path) -> None:
        """One safetensors file.

        >>> images.save(Path("images.safetensors"))
        """
        with written_aside(path) as aside:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors().items()}
            save_file(tensors, aside, {"kept": json.dumps(sorted(tensors))})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; the file must hold exactly this type's tensors.

        >>> images.save(Path("pictures.safetensors"))
        >>> len(Kept.load(Path("pictures.safetensors")))
        3
        """
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            expected = {f.name for f in fields(cls)}
            if names != expected:
                raise DiptychError(f"holds {sorted(names)}; expected {sorted(expected)}", where=path)
            return cls(**{name: file.get_tensor(name) for name in names})
