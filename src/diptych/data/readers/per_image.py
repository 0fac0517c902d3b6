"""A folder with one npz or npy file a picture."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Regions
from diptych.data.readers import fields
from diptych.data.readers.arrays import as_boxes, as_vectors
from diptych.data.readers.faults import Faults, Gathering


class PerImageFeatures:
    """Local features in files of their own, each read when it is asked for.

    npz: the vectors under `features`, `x`, `feat` …, the boxes under `bbox`, `boxes` …, `image_w` and `image_h`
    npy: the vectors alone
    """

    def __init__(self, root: Path, paths: list[Path]) -> None:
        if not paths:
            raise DiptychError("no .npz or .npy files in it", where=root)
        self.root, self.paths = root, paths
        self._dim: int | None = None

    @property
    def ids(self) -> list[str]:
        """The picture of each row: the file's name without its suffix."""
        return [path.relative_to(self.root).with_suffix("").as_posix() for path in self.paths]

    @property
    def dim(self) -> int:
        """Length of one local vector: that of the first file."""
        if self._dim is None:
            self._dim = read_one(self.paths[0]).vectors.shape[1]
        return self._dim

    def __len__(self) -> int:
        return len(self.paths)

    def where(self, row: int) -> str:
        """The file of a row."""
        return str(self.paths[row])

    def __getitem__(self, row: int) -> Regions:
        regions = read_one(self.paths[row])
        if regions.vectors.shape[1] != self.dim:
            raise DiptychError(
                f"vectors of dimension {regions.vectors.shape[1]}; expected {self.dim} as in {self.paths[0].name}",
                where=self.paths[row],
            )
        return regions


def read_one(path: Path) -> Regions:
    """The local features of one picture from its npz or npy file; nothing is ever unpickled."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return Regions(as_vectors(loaded, str(path)))
        with loaded:
            return _from_npz(path, loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise DiptychError(f"not a whole array file: {error}", where=path) from None


def _from_npz(path: Path, loaded: "np.lib.npyio.NpzFile") -> Regions:
    key = fields.pick(loaded.files, fields.FEATURES)
    if key is None:
        raise DiptychError(
            f"has {', '.join(loaded.files) or 'nothing'}; expected the vectors under 'features', 'x' or 'feat'",
            where=path,
        )
    vectors = as_vectors(loaded[key], f"{path}: {key}")
    number = fields.pick(loaded.files, fields.COUNTS)
    if number is not None:
        vectors = vectors[: int(loaded[number])]
    boxes = size = None
    key = fields.pick(loaded.files, fields.BOXES)
    if key is not None:
        raw = loaded[key]
        boxes = as_boxes(raw[: len(vectors)] if raw.ndim == 2 and raw.shape[-1] == 4 else raw, len(vectors), str(path))
    width, height = fields.pick(loaded.files, fields.WIDTHS), fields.pick(loaded.files, fields.HEIGHTS)
    if width is not None and height is not None:
        size = (int(loaded[width]), int(loaded[height]))
    return Regions(vectors, boxes, size)


def array_files(folder: Path) -> list[Path]:
    """The npz and npy files of a folder and of those inside it, in order."""
    return sorted(p for p in folder.rglob("*") if p.suffix in (".npz", ".npy") and not p.name.startswith("."))


def read_per_image(folder: Path, faults: Faults) -> Collection:
    """The pictures that a folder has features of, without sentences."""
    features = PerImageFeatures(folder, array_files(folder))
    gathering = Gathering(faults, captioned=False)
    for row, (id, path) in enumerate(zip(features.ids, features.paths, strict=True)):
        if path.stat().st_size == 0:
            faults.tell(str(path), "the file is empty")
            continue
        gathering.add(Item(id, (), row=row), str(path))
    return Collection(folder.name, gathering.items, features, format="features per picture")
