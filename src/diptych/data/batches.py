"""What an encoder is given: padded, batch-first tensors with a mask that is True where something real is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from diptych.common.device import sent
from diptych.common.errors import DiptychError
from diptych.data.collection import Regions


@dataclass(frozen=True)
class Pixels:
    """Pictures for a backbone.

    values: (n, height, width, 3) uint8, which the encoder normalises on its device; or (n, 3, height, width) float
    """

    values: Tensor

    def __len__(self) -> int:
        return len(self.values)

    def pin_memory(self) -> "Pixels":
        """The same in memory from which a GPU copies while other work goes on."""
        return Pixels(self.values.pin_memory())

    def to(self, device: torch.device | str) -> "Pixels":
        """The same batch on another device."""
        return Pixels(self.values.to(device, non_blocking=True))


class Masked:
    """What has a mask (n, k), and remembers of it what a GPU would have to be asked, and waited for."""

    mask: Tensor

    @property
    def real(self) -> Tensor | None:
        """Where what is real lies among all n x k, in order: (real,); None where nothing is padding."""
        if "_real" not in self.__dict__:
            real = self.mask.flatten().nonzero().squeeze(1)
            object.__setattr__(self, "_real", None if len(real) == self.mask.numel() else real)
        found: Tensor | None = self.__dict__["_real"]
        return found

    def knowing(self, before: "Masked") -> Self:
        """Itself, told what is known of the same mask where it came from."""
        if "_real" in before.__dict__ or before.mask.device.type == "cpu":
            real = before.real
            object.__setattr__(self, "_real", None if real is None else sent(real, self.mask.device))
        return self


@dataclass(frozen=True)
class LocalFeatures(Masked):
    """Precomputed local features: vectors (n, regions, f), mask (n, regions)."""

    vectors: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def pin_memory(self) -> "LocalFeatures":
        """The same in memory from which a GPU copies while other work goes on."""
        return LocalFeatures(self.vectors.pin_memory(), self.mask.pin_memory()).knowing(self)

    def to(self, device: torch.device | str) -> "LocalFeatures":
        """The same batch on another device."""
        return LocalFeatures(
            self.vectors.to(device, non_blocking=True),
            self.mask.to(device, non_blocking=True),
        ).knowing(self)


ImageBatch = Pixels | LocalFeatures


@dataclass(frozen=True)
class Tokens:
    """Tokenised sentences: ids (n, words), mask (n, words)."""

    ids: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Tensor:
        """Real tokens of each sentence: (n,)."""
        return self.mask.sum(1)

    @property
    def known_lengths(self) -> Tensor:
        """The same in main memory: known before a batch goes to a GPU, which is then not waited for."""
        known: Tensor | None = self.__dict__.get("_lengths")
        if known is None:
            known = self.lengths.cpu()
            object.__setattr__(self, "_lengths", known)
        return known

    def widened(self, multiple: int) -> "Tokens":
        """With so many more pads that the longest sentence is a multiple."""
        missing = -self.ids.shape[1] % multiple
        return Tokens(F.pad(self.ids, (0, missing)), F.pad(self.mask, (0, missing))) if missing else self

    def pin_memory(self) -> "Tokens":
        """The same in memory from which a GPU copies while other work goes on."""
        return Tokens(self.ids.pin_memory(), self.mask.pin_memory())

    def to(self, device: torch.device | str) -> "Tokens":
        """The same batch on another device."""
        moved = Tokens(self.ids.to(device, non_blocking=True), self.mask.to(device, non_blocking=True))
        if "_lengths" in self.__dict__ or self.mask.device.type == "cpu":
            object.__setattr__(moved, "_lengths", self.known_lengths)
        return moved


@dataclass(frozen=True)
class ReadTokens(Tokens):
    """Sentences that a frozen backbone has read before: its last hidden states (n, pieces, h) with their tokens."""

    hidden: Tensor


def pad_regions(items: Sequence[Regions | np.ndarray], names: Sequence[str] | None = None) -> LocalFeatures:
    """Stack pictures' local features, padding to the largest set; `names` are the pictures', for errors."""
    vectors = [np.asarray(i.vectors if isinstance(i, Regions) else i, dtype=np.float32) for i in items]
    longest = max((len(v) for v in vectors), default=1)
    dim = vectors[0].shape[1] if vectors else 0
    wrong = next((v.shape[1] for v in vectors if v.shape[1] != dim), None)
    if wrong is not None:
        raise DiptychError(f"pad_regions: local features of dimension {wrong}; expected {dim} as in the first picture")
    for i, v in enumerate(vectors):
        check_finite(v, f"picture {i} of {len(vectors)}" if names is None else names[i])
    out = np.zeros((len(vectors), longest, dim), dtype=np.float32)
    mask = np.zeros((len(vectors), longest), dtype=bool)
    for i, v in enumerate(vectors):
        out[i, : len(v)] = v
        mask[i, : len(v)] = True
    return LocalFeatures(torch.from_numpy(out), torch.from_numpy(mask))


def check_finite(regions: Regions | np.ndarray, name: str) -> None:
    """Refuse a picture's local features with a number that is not finite: it would make scores of anything."""
    vectors = regions.vectors if isinstance(regions, Regions) else regions
    if not np.isfinite(vectors).all():
        wrong = np.argwhere(~np.isfinite(vectors))[0]
        raise DiptychError(
            f"{name}: its local features hold {vectors[tuple(wrong)]} (vector {wrong[0]}, number {wrong[1]}); "
            "expected finite numbers"
        )


def pad_tokens(sentences: Sequence[Sequence[int]], pad: int = 0) -> Tokens:
    """Stack token ids, padding to the longest sentence."""
    longest = max((len(s) for s in sentences), default=1)
    ids = np.full((len(sentences), longest), pad, dtype=np.int64)
    mask = np.zeros((len(sentences), longest), dtype=bool)
    for i, s in enumerate(sentences):
        ids[i, : len(s)] = s
        mask[i, : len(s)] = True
    return Tokens(torch.from_numpy(ids), torch.from_numpy(mask))
