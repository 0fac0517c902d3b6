"""HDF5 in its common layouts: one dataset for all pictures with their ids, or a group or dataset for each."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Regions
from diptych.data.readers import fields
from diptych.data.readers.arrays import as_boxes, as_vectors
from diptych.data.readers.faults import Faults, Gathering

SUFFIXES = frozenset({".h5", ".hdf5", ".hdf", ".he5"})


def _open(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise DiptychError("HDF5 needs the package h5py: pip install 'diptych[hdf5]'", where=path) from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DiptychError(f"not a readable HDF5 file: {error}", where=path) from None


class Hdf5Features(ABC):
    """Local features in an HDF5 file, read a picture at a time; every process opens the file for itself."""

    ids: list[str]
    dim: int

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: Any = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    @property
    def file(self) -> Any:
        """The open file."""
        if self._file is None or self._process != os.getpid():
            self._file, self._process = _open(self.path), os.getpid()
        return self._file

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, row: int) -> str:
        """The place of a row, for people."""
        return f"{self.path}: {self.ids[row]}"

    def __getitem__(self, row: int) -> Regions:
        where = self.where(row)
        try:
            regions = self.read(row, where)
        except (OSError, KeyError) as error:
            raise DiptychError(f"cannot be read: {error}", where=where) from None
        if regions.vectors.shape[1] != self.dim:
            raise DiptychError(f"vectors of dimension {regions.vectors.shape[1]}; expected {self.dim}", where=where)
        return regions

    @abstractmethod
    def read(self, row: int, where: str) -> Regions:
        """One picture's local features."""


class StackedFeatures(Hdf5Features):
    """One dataset (n, regions, f) or (n, f); or (all regions, f) with `pos_boxes` (n, 2), first and last of each."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._keys = list(self.file)
        key = fields.pick(self._keys, fields.FEATURES)
        if key is None:
            raise DiptychError("no dataset of features in it", where=path)
        self.features = key
        shape = self.file[key].shape
        self.ranges = self.file["pos_boxes"][:] if "pos_boxes" in self.file else None
        if len(shape) not in (2, 3) or (self.ranges is not None and len(shape) != 2):
            raise DiptychError(f"{key}: shape {shape}; expected (pictures, regions, f) or (pictures, f)", where=path)
        self.dim = int(shape[-1])
        count = int(shape[0]) if self.ranges is None else len(self.ranges)
        self.ids = self._read_ids(count)
        self.boxes = fields.pick(self._keys, fields.BOXES)
        self.counts = fields.pick(self._keys, fields.COUNTS)
        self.widths, self.heights = fields.pick(self._keys, fields.WIDTHS), fields.pick(self._keys, fields.HEIGHTS)
        for other in (self.boxes, self.counts, self.widths, self.heights):
            wanted = int(shape[0]) if other == self.boxes else count
            if other is not None and len(self.file[other]) != wanted:
                raise DiptychError(f"{other}: {len(self.file[other])} rows; expected {wanted}, as in {key}", where=path)

    def _read_ids(self, count: int) -> list[str]:
        key = fields.pick(self._keys, fields.IDS)
        if key is None:
            beside = self.path.with_name(f"{self.path.stem}_ids.txt")
            if not beside.exists():
                return [str(i) for i in range(count)]
            key, ids = beside.name, beside.read_text(encoding="utf-8").split()
        else:
            ids = [v.decode() if isinstance(v, bytes) else str(v) for v in self.file[key][:].reshape(-1).tolist()]
        if len(ids) != count:
            raise DiptychError(f"{key}: {len(ids)} ids; expected {count}, as in {self.features}", where=self.path)
        return ids

    def read(self, row: int, where: str) -> Regions:
        """One row, without the padding where the file says how many regions are real."""
        start = row if self.ranges is None else slice(int(self.ranges[row][0]), int(self.ranges[row][1]))
        count = None if self.counts is None or self.ranges is not None else int(self.file[self.counts][row])
        vectors = as_vectors(np.asarray(self.file[self.features][start]), where)[:count]
        boxes = size = None
        if self.boxes is not None:
            raw = np.asarray(self.file[self.boxes][start])
            boxes = as_boxes(raw[:count] if raw.shape[-1] == 4 else raw, len(vectors), f"{where}: {self.boxes}")
        if self.widths is not None and self.heights is not None:
            size = (int(self.file[self.widths][row]), int(self.file[self.heights][row]))
        return Regions(vectors, boxes, size)


class KeyedFeatures(Hdf5Features):
    """For each picture a group `id` with datasets, a dataset `id`, or datasets `id_features` and `id_boxes`."""

    def __init__(self, path: Path) -> None:
        import h5py

        super().__init__(path)
        keys = list(self.file)
        if not keys:
            raise DiptychError("the file is empty", where=path)
        self.suffix = "_features" if any(key.endswith("_features") for key in keys) else ""
        self.ids = [key.removesuffix(self.suffix) for key in keys if key.endswith(self.suffix)]
        first = self.file[self.ids[0] + self.suffix]
        self.grouped = isinstance(first, h5py.Group)
        self.dim = 0
        if self.grouped:
            key = fields.pick(first, fields.FEATURES)
            shape = first[key].shape if key else ()
            if len(shape) not in (1, 2):
                raise DiptychError(
                    f"{self.ids[0]}: has {', '.join(first) or 'nothing'}; expected one dataset of features for "
                    "all pictures with their ids, or a group or dataset of (regions, f) for each picture",
                    where=path,
                )
        self.dim = int(self.read(0, self.where(0)).vectors.shape[1])

    def read(self, row: int, where: str) -> Regions:
        """The vectors, boxes and size of one picture."""
        id = self.ids[row]
        entry = self.file[id + self.suffix]
        if not self.grouped:
            vectors = as_vectors(np.asarray(entry), where)
            raw = self.file.get(f"{id}_boxes") if self.suffix else None
            return Regions(vectors, None if raw is None else as_boxes(np.asarray(raw), len(vectors), where))
        key = fields.pick(entry, fields.FEATURES)
        if key is None:
            raise DiptychError(f"no features in it, only {', '.join(entry) or 'nothing'}", where=where)
        vectors = as_vectors(np.asarray(entry[key]), where)
        about = {**dict(entry.attrs), **{k: entry[k] for k in entry}}
        boxes, width, height = (fields.pick(about, kind) for kind in (fields.BOXES, fields.WIDTHS, fields.HEIGHTS))
        size = None
        if width is not None and height is not None:
            size = (int(np.asarray(about[width]).item()), int(np.asarray(about[height]).item()))
        return Regions(
            vectors, None if boxes is None else as_boxes(np.asarray(about[boxes]), len(vectors), where), size
        )


def open_hdf5(path: Path) -> Hdf5Features:
    """The features of an HDF5 file, its layout recognised by looking."""
    try:
        with _open(path) as file:
            key = fields.pick(file, fields.FEATURES)
            stacked = key is not None and hasattr(file[key], "shape")
        return StackedFeatures(path) if stacked else KeyedFeatures(path)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:  # as h5py tells of damaged parts
        reason = error.args[0] if error.args else type(error).__name__
        raise DiptychError(f"not a readable HDF5 file: {reason}", where=path) from None


def read_hdf5(path: Path, faults: Faults) -> Collection:
    """The pictures that an HDF5 file has features of, without sentences."""
    features = open_hdf5(path)
    gathering = Gathering(faults, captioned=False)
    for row, id in enumerate(features.ids):
        gathering.add(
            Item(id, (), row=row), f"{path}: row {row}" if isinstance(features, StackedFeatures) else str(path)
        )
    return Collection(path.stem, gathering.items, features, format="HDF5")
