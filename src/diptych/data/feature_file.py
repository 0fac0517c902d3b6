"""Local features of many pictures in one memory-mapped file.

A file is a head of 64 bytes, the vectors of all pictures one after another, the small arrays (regions a picture,
picture sizes, checksums, boxes, scores), a JSON index, and a trailer with the index's place and SHA-256.
"""

import hashlib
import json
import os
import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from diptych.common.config import parse, to_tree
from diptych.common.errors import DiptychError
from diptych.data.collection import Regions

HEAD = b"diptych features 1\n".ljust(64, b"\0")
TRAILER = struct.Struct("<QQ32s16s")  # place and length of the index, its SHA-256, the end's mark
END = b"diptych-features"
DTYPES: dict[str, np.dtype[Any]] = {"half": np.dtype("<f2"), "single": np.dtype("<f4")}


@dataclass(frozen=True)
class FeatureSource:
    """What the features were computed with.

    backbone, size: as `load_extractor` takes them
    dim: length of one local vector; precision: how it is stored
    grid: rows and columns of the cells; regions: most regions of a picture, from a detector
    weights: SHA-256 of the model's weights; package: name and version of what wrote the file
    """

    backbone: str
    size: int
    dim: int
    precision: Literal["half", "single"] = "half"
    grid: tuple[int, ...] | None = None
    regions: int | None = None
    weights: str = ""
    package: str = ""

    def differences(self, other: "FeatureSource") -> str:
        """The fields in which two sources differ, for people."""
        mine, theirs = to_tree(self), to_tree(other)
        return ", ".join(f"{key} {mine[key]!r} and {theirs[key]!r}" for key in mine if mine[key] != theirs[key])


def is_feature_file(path: Path) -> bool:
    """Whether a file begins as a feature file does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEAD)) == HEAD


class FeatureFile:
    """Local features read a row at a time from a memory-mapped file; `rows` finds a picture's row by its id."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        index = self._read_index()
        self.source = parse(FeatureSource, index["source"], f"{self.path}: source")
        self.ids: list[str] = index["ids"]
        self._arrays = index["arrays"]
        lengths = self._array("lengths")
        self.sizes = self._array("sizes")  # (pictures, 2), width and height
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        shape = (int(self._starts[-1]), self.dim)
        self.vectors = self._map(DTYPES[self.source.precision], len(HEAD), shape)  # (all regions, f)
        self.boxes = self._array("boxes") if "boxes" in self._arrays else None
        self.scores = self._array("scores") if "scores" in self._arrays else None

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureFile, (self.path,)  # a copy in another process maps the file again

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> Regions:
        if not -len(self) <= row < len(self):
            raise IndexError(f"{self.path}: row {row} of {len(self)}")
        row %= len(self)
        part = slice(int(self._starts[row]), int(self._starts[row + 1]))
        size = (int(self.sizes[row, 0]), int(self.sizes[row, 1]))
        scores = None if self.scores is None else self.scores[part]
        boxes = None if self.boxes is None else self.boxes[part]
        if self.source.grid is not None:
            boxes = cell_boxes(self.source.grid, size)
        return Regions(self.vectors[part], boxes, size, scores)

    @property
    def dim(self) -> int:
        """Length of one local vector."""
        return self.source.dim

    @property
    def lengths(self) -> np.ndarray:
        """Regions of each picture: (pictures,)."""
        return np.diff(self._starts)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each picture's id."""
        return {id: row for row, id in enumerate(self.ids)}

    def verify(self) -> None:
        """Read every byte and compare it with the checksums; an error names what is damaged."""
        for name in self._arrays:
            if hashlib.sha256(self._array(name).tobytes()).hexdigest() != self._arrays[name]["sha256"]:
                raise DiptychError(
                    f"damaged: its {name} do not have the checksum they were written with", where=self.path
                )
        for row, expected in enumerate(self._array("checks")):
            part = self.vectors[self._starts[row] : self._starts[row + 1]]
            if zlib.crc32(part.data) != expected:
                raise DiptychError(f"damaged: the features of {self.ids[row]!r} have a wrong checksum", where=self.path)

    def _read_index(self) -> dict[str, Any]:
        try:
            with self.path.open("rb") as file:
                if file.read(len(HEAD)) != HEAD:
                    raise DiptychError("not a feature file; expected what `diptych features` writes", where=self.path)
                end = file.seek(0, os.SEEK_END)
                file.seek(max(len(HEAD), end - TRAILER.size))
                trailer = file.read()
                if len(trailer) != TRAILER.size or not trailer.endswith(END):
                    raise DiptychError(f"truncated: it ends at byte {end} without its index", where=self.path)
                place, length, digest, _ = TRAILER.unpack(trailer)
                file.seek(place)
                text = file.read(length)
        except FileNotFoundError:
            begun = part_folder(self.path)
            hint = f"; {begun} was begun, and the same command goes on with it" if begun.is_dir() else ""
            raise DiptychError(f"no such feature file{hint}", where=self.path) from None
        if hashlib.sha256(text).digest() != digest:
            raise DiptychError("damaged: its index does not have the checksum it was written with", where=self.path)
        self.checksum = digest.hex()  # of the index, which holds the checksums of everything else
        index: dict[str, Any] = json.loads(text)
        return index

    def _array(self, name: str) -> np.ndarray:
        entry = self._arrays[name]
        return self._map(np.dtype(entry["dtype"]), entry["place"], tuple(entry["shape"]))

    def _map(self, dtype: np.dtype[Any], place: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(np.memmap(self.path, dtype, "r", place, shape))


def cell_boxes(grid: tuple[int, ...], size: tuple[int, int]) -> np.ndarray:
    """Boxes of a grid's cells on a picture of that width and height, in reading order: (rows * columns, 4)."""
    rows, columns = grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    corners = np.stack([x / columns, y / rows, (x + 1) / columns, (y + 1) / rows], 1)
    return (corners * np.tile(size, 2)).astype(np.float32)


def part_folder(path: Path) -> Path:
    """Where a feature file is while it is being written."""
    return path.with_name(path.name + ".part")
