"""Bottom-up-attention TSV: image_id, image_w, image_h, num_boxes, boxes, features; the last two base64 of float32."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Regions
from diptych.data.readers.faults import Faults, Gathering

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
WITH_OBJECTS = (
    "img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf",
    "num_boxes", "boxes", "features",
)  # fmt: skip
_HEAD = 4096


@dataclass(frozen=True)
class TsvRow:
    """One line of the file, not yet decoded."""

    id: str
    number: int
    start: int
    end: int
    size: tuple[int, int]
    count: int


def is_bottom_up(path: Path) -> bool:
    """Whether a file begins like this format."""
    return _columns(path) is not None


def _columns(path: Path) -> tuple[tuple[str, ...], bool] | None:
    """The columns, and whether the first line only names them."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None
    cells = [c.strip() for c in head.split(b"\n", 1)[0].decode("utf-8", "replace").split("\t")]
    if {"num_boxes", "boxes", "features"} <= set(cells) and cells[0] in ("image_id", "img_id"):
        return tuple(cells), True
    if len(cells) >= 5 and all(c.isdigit() for c in cells[1:4]):
        return COLUMNS, False
    if len(cells) >= 8 and cells[1].isdigit() and cells[2].isdigit() and cells[7].isdigit():
        return WITH_OBJECTS, False
    return None


def encoded_length(count: int) -> int:
    """Characters that base64 takes for `count` float32 numbers."""
    return (4 * count + 2) // 3 * 4


class TsvFeatures:
    """Local features of a bottom-up TSV: where each line stands is found once, a line is decoded when it is asked for.

    The length of a line follows from its number of boxes, so the search leaps from line to line without reading them.
    """

    def __init__(self, path: Path, faults: Faults) -> None:
        columns = _columns(path)
        if columns is None:
            raise DiptychError(f"line 1: expected the columns {', '.join(COLUMNS)}, separated by tabs", where=path)
        self.path = path
        self.columns, self._headed = columns
        self._at = {name: i for i, name in enumerate(self.columns)}
        self._dim: int | None = None
        self.rows: list[TsvRow] = []
        for row in self._search(faults):
            if row.count < 1:
                faults.tell(f"{path}: line {row.number}: num_boxes", f"{row.count}; expected at least one box")
            else:
                self.rows.append(row)

    @property
    def ids(self) -> list[str]:
        """The picture of each row."""
        return [row.id for row in self.rows]

    @property
    def dim(self) -> int:
        """Length of one local vector."""
        return self._dim or 0

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, row: int) -> str:
        """The place of a row, for people."""
        return f"{self.path}: line {self.rows[row].number}"

    def __getitem__(self, row: int) -> Regions:
        entry = self.rows[row]
        with self.path.open("rb") as file:
            file.seek(entry.start)
            cells = file.read(entry.end - entry.start).rstrip(b"\r\n").split(b"\t")
        where = self.where(row)
        boxes = _decode(cells[self._at["boxes"]], f"{where}: boxes", (entry.count, 4))
        vectors = _decode(cells[self._at["features"]], f"{where}: features", (entry.count, self.dim))
        return Regions(vectors, boxes, entry.size)

    def _search(self, faults: Faults) -> Iterator[TsvRow]:
        end = self.path.stat().st_size
        with self.path.open("rb") as file:
            start, number = (len(file.readline()), 2) if self._headed else (0, 1)
            while start < end:
                file.seek(start)
                head = file.read(_HEAD)
                stop = self._leap(head, start, end)
                if stop is not None:
                    file.seek(stop - 2)
                    stop = stop if file.read(2)[-1:] == b"\n" else None
                if stop is None:
                    file.seek(start)
                    line = file.readline()
                    stop = start + len(line)
                    whole = self._whole(line, number, faults)
                else:
                    whole = True
                if whole:
                    row = self._row(head, number, start, stop, faults)
                    if row is not None:
                        yield row
                start, number = stop, number + 1

    def _leap(self, head: bytes, start: int, end: int) -> int | None:
        """Where the next line begins if this one is as long as its number of boxes says; None where that is unknown."""
        before = self._at["boxes"]
        if self._dim is None or self.columns[-3:] != COLUMNS[-3:]:
            return None
        cells = head.split(b"\t", before)
        if len(cells) <= before or b"\n" in head[: len(head) - len(cells[-1])] or not cells[before - 1].isdigit():
            return None
        count = int(cells[before - 1])
        width = encoded_length(4 * count) + 1 + encoded_length(self._dim * count)
        stop = start + len(head) - len(cells[-1]) + width + 1
        return stop if stop <= end and count else None

    def _whole(self, line: bytes, number: int, faults: Faults) -> bool:
        """Check a line that was read whole; the first good one gives the dimension."""
        where = f"{self.path}: line {number}"
        if not line.strip():
            return False
        cells = line.rstrip(b"\r\n").split(b"\t")
        if len(cells) != len(self.columns):
            faults.tell(where, f"{len(cells)} fields; expected {len(self.columns)}: {', '.join(self.columns)}")
            return False
        text = cells[self._at["num_boxes"]].strip()
        if not text.isdigit():
            faults.tell(f"{where}: num_boxes", f"expected a number, got {text.decode('utf-8', 'replace')!r}")
            return False
        count = int(text)
        if count == 0:
            return True
        boxes, features = cells[self._at["boxes"]], cells[self._at["features"]]
        if _numbers(boxes) != 4 * count:
            wanted = encoded_length(4 * count)
            faults.tell(f"{where}: boxes", f"{len(boxes)} characters; expected {wanted} for {count} boxes in base64")
            return False
        numbers = _numbers(features)
        if numbers is None or numbers == 0 or numbers % count:
            faults.tell(
                f"{where}: features", f"{len(features)} characters; no whole vectors for {count} boxes in base64"
            )
            return False
        if self._dim is None:
            self._dim = numbers // count
        if numbers != self._dim * count:
            faults.tell(f"{where}: features", f"vectors of dimension {numbers // count}; expected {self._dim}")
            return False
        return True

    def _row(self, head: bytes, number: int, start: int, stop: int, faults: Faults) -> TsvRow | None:
        cells = head.split(b"\t")
        named = {name: cells[i].strip().decode("utf-8", "replace") for name, i in self._at.items() if i < len(cells)}
        try:
            width, height = (int(named.get(f"image_{k}", named.get(f"img_{k}", ""))) for k in "wh")
            count = int(named["num_boxes"])
        except (ValueError, KeyError):
            faults.tell(f"{self.path}: line {number}", "expected numbers in image_w, image_h and num_boxes")
            return None
        return TsvRow(named[self.columns[0]], number, start, stop, (width, height), count)


def _numbers(cell: bytes) -> int | None:
    """How many float32 numbers a base64 cell holds; None where the bytes do not divide."""
    size = len(cell) // 4 * 3 - (len(cell) - len(cell.rstrip(b"=")))
    return size // 4 if len(cell) % 4 == 0 and size % 4 == 0 else None


def _decode(cell: bytes, where: str, shape: tuple[int, int]) -> np.ndarray:
    try:
        data = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise DiptychError(f"not valid base64: {error}", where=where) from None
    if len(data) != 4 * shape[0] * shape[1]:
        raise DiptychError(f"{len(data)} bytes; expected {4 * shape[0] * shape[1]} for {shape} float32", where=where)
    return np.frombuffer(data, dtype="<f4").reshape(shape)


def read_bottom_up(path: Path, faults: Faults) -> Collection:
    """The pictures of a TSV, with local features and boxes and no sentences."""
    features = TsvFeatures(path, faults)
    gathering = Gathering(faults, captioned=False)
    for i, row in enumerate(features.rows):
        gathering.add(Item(row.id, (), row=i), features.where(i))
    return Collection(path.stem, gathering.items, features, format="bottom-up TSV")
