"""Local features that are read once and stay on the training device, where every step gathers its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diptych.common.errors import DiptychError
from diptych.common.progress import progress_bar
from diptych.data.batches import LocalFeatures, Masked, check_finite
from diptych.data.collection import Collection, Regions
from diptych.encoders.size_augmentation import stay
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept
from diptych.training.data import Splits

CHUNK = 256  # pictures that go to the device, or through an encoder, at once


@dataclass(frozen=True)
class HeldRows(Masked):
    """What a step sees of what is held: rows (n, k) of the held vectors, mask (n, k)."""

    rows: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: torch.device | str) -> "HeldRows":
        """The same on another device."""
        moved = HeldRows(self.rows.to(device, non_blocking=True), self.mask.to(device, non_blocking=True))
        return moved.knowing(self)

    def pin_memory(self) -> "HeldRows":
        """The same in memory from which a GPU copies while other work goes on."""
        return HeldRows(self.rows.pin_memory(), self.mask.pin_memory()).knowing(self)


def choose_rows(
    starts: Tensor, sets: Sequence[int], drop: float = 0.0, generator: torch.Generator | None = None
) -> HeldRows:
    """The rows of some pictures' regions, or of sentences' tokens, in order; with `drop`, those that size augmentation
    leaves.

    starts: (sets + 1,), where each set begins among all vectors
    """
    chosen = torch.tensor(sets)
    begin, lengths = starts[chosen], starts[chosen + 1] - starts[chosen]
    places = torch.arange(max(1, int(lengths.max()))).expand(len(chosen), -1)
    mask = places < lengths.unsqueeze(1)
    if drop > 0:
        places, mask = stay(mask, drop, generator)
    return HeldRows((begin.unsqueeze(1) + places).masked_fill(~mask, 0), mask)


class HeldFeatures:
    """The local features of a collection's pictures, in its order, on a device.

    vectors: (all regions, f), in the precision that they were stored in
    starts: (pictures + 1,), where each picture's regions begin; on the CPU
    """

    def __init__(self, vectors: Tensor, starts: Tensor) -> None:
        self.vectors, self.starts = vectors, starts

    @classmethod
    def load(cls, collection: Collection, device: torch.device) -> "HeldFeatures":
        """All of a collection's features; one that is missing or not finite is told by its picture."""
        features, n = collection.features, len(collection)
        if features is None:
            raise DiptychError(f"{collection.name}: the data has no local features, and the matcher needs them")
        rows = []
        for item in collection.items:
            if item.row is None:
                raise DiptychError(f"{item.id}: the feature file has no row for this picture")
            rows.append(item.row)
        shapes = [(len(found.vectors), found.vectors.dtype) for found in map(features.__getitem__, rows)]
        starts = torch.tensor([0, *(count for count, _ in shapes)]).cumsum(0)
        dtype = torch.float16 if {stored for _, stored in shapes} == {np.dtype(np.float16)} else torch.float32
        vectors = empty(int(starts[-1]), features.dim, dtype, device, "training.hold_features")
        with progress_bar("pictures") as bar:
            task = bar.add_task("features to the device", total=n, note="")
            for begin in range(0, n, CHUNK):
                end = min(begin + CHUNK, n)
                few = [features[row].vectors for row in rows[begin:end]]
                part = vectors[int(starts[begin]) : int(starts[end])]
                part.copy_(torch.from_numpy(np.concatenate(few)))
                if not bool(torch.isfinite(part).all()):
                    for item, found in zip(collection.items[begin:end], few, strict=True):
                        check_finite(found, item.id)
                bar.advance(task, end - begin)
        return cls(vectors, starts)

    @property
    def dim(self) -> int:
        """Length of one local vector."""
        return self.vectors.shape[1]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> Regions:
        return Regions(self.vectors[int(self.starts[row]) : int(self.starts[row + 1])].cpu().numpy())

    def cut(self, asked: HeldRows) -> LocalFeatures:
        """The regions that a step asks for, in float32; `asked` is on the same device."""
        vectors = self.vectors[asked.rows].to(torch.float32)
        return LocalFeatures(vectors.masked_fill_(~asked.mask.unsqueeze(-1), 0), asked.mask).knowing(asked)

    def encode(self, matcher: Matcher, collection: Collection) -> Kept:
        """What a matcher keeps of a collection's pictures, which may be some of those held, on the CPU."""
        wanted = [item.row for item in collection.items if item.row is not None]
        parts = []
        for begin in range(0, len(wanted), CHUNK):
            rows = choose_rows(self.starts, wanted[begin : begin + CHUNK])
            parts.append(matcher.encode_images(self.cut(rows.to(self.vectors.device)), CHUNK).to("cpu"))
        return type(parts[0]).cat(parts)


def empty(rows: int, dim: int, dtype: torch.dtype, device: torch.device, key: str) -> Tensor:
    """Room for so many vectors; where a device has none, an error that names the recipe's key."""
    try:
        return torch.empty(rows, dim, dtype=dtype, device=device)
    except RuntimeError:
        needed = rows * dim * dtype.itemsize / 2**30
        raise DiptychError(
            f"{key}: {rows:,} vectors of {dim} numbers take {needed:.1f} GiB, more than {device} has"
        ) from None


def hold(collection: Collection, device: torch.device) -> Collection:
    """The same pictures with their features on a device, picture i in row i; as it is where they are there already."""
    held = collection.features
    if (
        isinstance(held, HeldFeatures)
        and held.vectors.device == torch.empty(0, device=device).device
        and [item.row for item in collection.items] == list(range(len(held)))
    ):
        return collection
    items = [replace(item, row=i) for i, item in enumerate(collection.items)]
    return replace(collection, items=items, features=HeldFeatures.load(collection, device))


def hold_splits(splits: Splits, device: torch.device) -> Splits:
    """What a run trains on and validates on, with its features on a device; the test split stays where it is."""
    sets = tuple(hold(part, device) for part in splits.validations)
    return replace(splits, train=hold(splits.train, device), sets=sets)
