"""Numpy arrays on disk: headers checked against the file's size, rows read through a memory map."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Features, Regions
from diptych.data.readers.faults import Faults


class ArrayFile:
    """One npy file, memory-mapped when first read; `rows` is how many whole rows are on disk."""

    def __init__(self, path: Path, faults: Faults) -> None:
        self.path = path
        self.shape, self._dtype, fortran, self._offset = _header(path)
        self.fortran = fortran
        self._map: np.ndarray | None = None
        each = int(np.prod(self.shape[1:], dtype=np.int64)) * self._dtype.itemsize
        on_disk, wanted = path.stat().st_size - self._offset, self.shape[0] * each
        self.rows = self.shape[0]
        if on_disk < wanted:
            self.rows = 0 if fortran or not each else on_disk // each
            faults.tell(
                str(path),
                f"truncated: the header promises {self.shape} {self._dtype.name}, {wanted} bytes, "
                f"but {on_disk} are there ({self.rows} whole rows)",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # a pickled memory map would carry the whole array

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < self.rows:
            raise IndexError(f"{self.path}: row {row} of {self.rows}")
        if self._map is None:
            shape = self.shape if self.fortran else (self.rows, *self.shape[1:])
            order: Any = "F" if self.fortran else "C"
            self._map = np.memmap(self.path, self._dtype, "r", self._offset, shape, order)
        return np.asarray(self._map[row])


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], bool, int]:
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            offset = file.tell()
    except OSError as error:
        raise DiptychError(f"cannot be read: {error.strerror or error}", where=path) from None
    except (ValueError, EOFError, struct.error) as error:
        raise DiptychError(f"not a whole npy file: {error}", where=path) from None
    if dtype.hasobject or not np.issubdtype(dtype, np.number):
        raise DiptychError(
            f"holds {dtype}; expected an array of numbers (pickled objects are never loaded)", where=path
        )
    if not shape:
        raise DiptychError("holds a single number; expected an array", where=path)
    return shape, dtype, fortran, offset


def as_vectors(array: np.ndarray, where: str) -> np.ndarray:
    """One picture's local vectors as (regions, f) from (f,), (regions, f), (h, w, f) or (f, h, w)."""
    if array.ndim == 1:
        return array[None]
    if array.ndim == 2:
        return array
    if array.ndim == 3:
        if array.shape[1] == array.shape[2] < array.shape[0]:
            return array.reshape(len(array), -1).T
        return array.reshape(-1, array.shape[2])
    raise DiptychError(f"the features have shape {array.shape}; expected (regions, f)", where=where)


def as_boxes(array: np.ndarray, regions: int, where: str) -> np.ndarray:
    """One picture's boxes as (regions, 4) float32, from that shape or its transpose."""
    boxes = np.asarray(array, dtype=np.float32)
    if boxes.shape == (4, regions) and regions != 4:
        boxes = boxes.T
    if boxes.shape != (regions, 4):
        raise DiptychError(f"the boxes have shape {array.shape}; expected ({regions}, 4)", where=where)
    return boxes


class ArrayFeatures:
    """Local features in one npy file (n, regions, f), with boxes and sizes in others; every `stride`-th row counts."""

    def __init__(
        self, array: ArrayFile, stride: int = 1, boxes: ArrayFile | None = None, sizes: ArrayFile | None = None
    ) -> None:
        if len(array.shape) not in (2, 3):
            raise DiptychError(
                f"shape {array.shape}; expected (pictures, regions, f) or (pictures, f)", where=array.path
            )
        self.array, self.stride, self.boxes, self.sizes = array, stride, boxes, sizes

    @property
    def dim(self) -> int:
        """Length of one local vector."""
        return self.array.shape[-1]

    def __len__(self) -> int:
        return self.array.rows // self.stride

    def __getitem__(self, row: int) -> Regions:
        where = self.where(row)
        vectors = as_vectors(self.array[row * self.stride], where)
        boxes = size = None
        if self.boxes is not None:
            boxes = as_boxes(self.boxes[self._beside(self.boxes, row)], len(vectors), where)
        if self.sizes is not None:
            width, height = self.sizes[self._beside(self.sizes, row)][:2]
            size = (int(width), int(height))
        return Regions(vectors, boxes, size)

    def _beside(self, array: ArrayFile, row: int) -> int:
        return row * (self.stride if array.shape[0] == self.array.shape[0] else 1)

    def where(self, row: int) -> str:
        """The place of a row, for people."""
        return f"{self.array.path}: row {row * self.stride}"


class JoinedFeatures:
    """Several sources of local features, one after the other."""

    def __init__(self, parts: Sequence[Features]) -> None:
        self.parts = list(parts)
        self._starts = np.cumsum([0, *(len(part) for part in self.parts)])
        dims = {part.dim for part in self.parts}
        if len(dims) != 1:
            raise DiptychError(f"features of different dimensions cannot be joined: {sorted(dims)}")

    @property
    def dim(self) -> int:
        """Length of one local vector."""
        return self.parts[0].dim

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _part(self, row: int) -> tuple[Features, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.parts[part], row - int(self._starts[part])

    def __getitem__(self, row: int) -> Regions:
        part, inner = self._part(row)
        return part[inner]

    def where(self, row: int) -> str:
        """The place of a row, for people."""
        part, inner = self._part(row)
        return place(part, inner)


def place(features: Features, row: int) -> str:
    """Where a row of features stands: as its source says, or its number."""
    where = getattr(features, "where", None)
    return str(where(row)) if callable(where) else f"{getattr(features, 'path', 'features')}: row {row}"
