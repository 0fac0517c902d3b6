"""Writing a feature file so that a kill loses only the last moments.

While it is being written, a folder FILE.part holds the vectors, the boxes, and a journal with one line a picture. The
journal is written after the features that it vouches for; what it does not vouch for is cut off when the work goes on.
"""

import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from diptych.common.config import parse, read_json, to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json, write_text
from diptych.data.collection import Regions
from diptych.data.feature_file import DTYPES, END, HEAD, TRAILER, FeatureFile, FeatureSource, part_folder

_COMMIT_SECONDS = 2.0
_BOX_BYTES = 20  # x0 y0 x1 y1 and the score, in single precision


class FeatureWriter:
    """Writes a feature file picture by picture; opened again after a kill, it goes on where it stopped.

    Boxes and scores are kept where the source has no grid, whose cells need none.
    """

    def __init__(self, path: Path, source: FeatureSource) -> None:
        self.path, self.source = path, source
        self.boxes = source.grid is None
        self._row = source.dim * DTYPES[source.precision].itemsize
        self.folder = part_folder(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._unlock = _lock(self.folder)
        try:
            self._journal = self._resume()
        except BaseException:
            self._unlock()
            raise
        self.done = {line[0] for line in self._journal}
        total = sum(line[1] for line in self._journal)
        self._vectors = self._open("vectors", len(HEAD) + total * self._row)
        self._boxes = self._open("boxes", total * _BOX_BYTES if self.boxes else 0)
        self._lines = (self.folder / "journal").open("a", encoding="utf-8")
        self._waiting: list[str] = []
        self._committed = time.monotonic()

    def add(self, id: str, regions: Regions) -> None:
        """Append one picture's features; they are safe after the next commit, at most two seconds later."""
        with np.errstate(over="ignore"):
            vectors = np.ascontiguousarray(regions.vectors, dtype=DTYPES[self.source.precision])
        if vectors.ndim != 2 or len(vectors) == 0 or vectors.shape[1] != self.source.dim:
            raise DiptychError(f"features of shape {vectors.shape}; expected (regions, {self.source.dim})", where=id)
        if not np.isfinite(vectors).all():
            large = self.source.precision == "half" and not np.isnan(vectors).any()
            hint = "too large for half precision; store them in single precision" if large else "NaN or infinite"
            raise DiptychError(f"features that are {hint}", where=id)
        if id in self.done:
            raise DiptychError(f"its features are already in {self.path}; ids must differ", where=id)
        if regions.size is None or (self.boxes and regions.boxes is None):
            raise DiptychError("features without the picture's size, or regions without boxes", where=id)
        self._vectors.write(vectors.data)
        if self.boxes:
            table = np.full((len(vectors), 5), np.nan, dtype="<f4")
            table[:, :4] = regions.boxes
            if regions.scores is not None:
                table[:, 4] = regions.scores
            self._boxes.write(table.tobytes())
        line = [id, len(vectors), *map(int, regions.size), zlib.crc32(vectors.data)]
        self.done.add(id)
        self._journal.append(line)
        self._waiting.append(json.dumps(line) + "\n")
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Bring everything that was added to the disk: the features first, then the journal that counts on them."""
        for file in (self._vectors, self._boxes):
            file.flush()
            os.fsync(file.fileno())
        self._lines.writelines(self._waiting)
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self._waiting.clear()
        self._committed = time.monotonic()

    def close(self) -> None:
        """Commit and let go; the file stays unfinished where `finish` did not come first."""
        if self._vectors.closed:
            return
        self.commit()
        for file in (self._vectors, self._boxes, self._lines):
            file.close()
        self._unlock()

    def finish(self) -> FeatureFile:
        """Append the small arrays and the index, and give the file its name."""
        if not self._journal:
            raise DiptychError("no picture's features to write", where=self.path)
        self.commit()
        lines = self._journal
        arrays = {
            "lengths": np.array([line[1] for line in lines], dtype="<i4"),
            "sizes": np.array([line[2:4] for line in lines], dtype="<i4"),
            "checks": np.array([line[4] for line in lines], dtype="<u4"),
        }
        if self.boxes:
            table = np.fromfile(self.folder / "boxes", dtype="<f4").reshape(-1, 5)
            arrays |= {"boxes": np.ascontiguousarray(table[:, :4]), "scores": np.ascontiguousarray(table[:, 4])}
        entries = {}
        for name, array in arrays.items():
            self._vectors.write(b"\0" * (-self._vectors.tell() % 64))
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            place = self._vectors.tell()
            entries[name] = {"dtype": array.dtype.str, "shape": array.shape, "place": place, "sha256": digest}
            self._vectors.write(array.tobytes())
        ids = [line[0] for line in lines]
        text = json.dumps({"source": to_tree(self.source), "arrays": entries, "ids": ids}).encode()
        place = self._vectors.tell()
        self._vectors.write(text + TRAILER.pack(place, len(text), hashlib.sha256(text).digest(), END))
        self.close()
        os.replace(self.folder / "vectors", self.path)
        shutil.rmtree(self.folder)
        return FeatureFile(self.path)

    def _open(self, name: str, length: int) -> BinaryIO:
        """A part's file, cut to what the journal vouches for."""
        path = self.folder / name
        file = path.open("r+b" if path.exists() else "w+b")
        if name == "vectors" and path.stat().st_size < len(HEAD):
            file.write(HEAD)
        file.truncate(length)
        file.seek(length)
        return file

    def _resume(self) -> list[list[Any]]:
        """The journal's lines, less a torn last one and those whose features did not reach the disk."""
        begun = self.folder / "source.json"
        if not begun.exists():
            write_json(begun, to_tree(self.source))
            return []
        source = parse(FeatureSource, read_json(begun), str(begun))
        if source != self.source:
            raise DiptychError(
                f"begun with {source.differences(self.source)} now; "
                "give the same settings, or remove it to start again",
                where=self.folder,
            )
        journal = self.folder / "journal"
        if not journal.exists():
            return []
        lines: list[list[Any]] = []
        room = _size(self.folder / "vectors") - len(HEAD)
        boxes = _size(self.folder / "boxes")
        *texts, _torn = journal.read_text(encoding="utf-8", errors="replace").split("\n")
        for text in texts:
            try:
                line = json.loads(text)
            except ValueError:  # what a power cut left
                break
            room, boxes = room - line[1] * self._row, boxes - line[1] * _BOX_BYTES
            if room < 0 or (self.boxes and boxes < 0):
                break
            lines.append(line)
        write_text(journal, "".join(json.dumps(line) + "\n" for line in lines))
        return lines


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lock(folder: Path) -> Callable[[], None]:
    """Keep a second process away from the folder; returns how to let go. The system lets go of a killed process's."""
    try:
        import fcntl
    except ImportError:
        return lambda: None
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DiptychError("another process is writing it", where=folder) from None
    return file.close
