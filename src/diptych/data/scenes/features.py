"""Local features of drawn scenes without any network: the pixels of regions, and where they are."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from diptych.common.errors import DiptychError, nearest
from diptych.data.collection import Regions
from diptych.data.scenes.descriptor import DIM, describe_region
from diptych.data.scenes.dice import Dice
from diptych.data.scenes.draw import PICTURE_SIZE, boxes, checked_size, draw
from diptych.data.scenes.scene import Scene

GRID = 6

RegionKind = Literal["boxes", "grid"]


class SceneFeatures:
    """One vector a region, as `describe_region` computes it from the pixels and the place.

    The regions are the boxes of what is drawn, one for each member of a group, in an order that says nothing
    (`boxes`); or 6 x 6 cells, row by row (`grid`). The whole picture is one region more. What a thing is called is
    not in a vector: that is for the matcher to find out. A picture is drawn when its row is first asked for; its
    vectors are kept, in half precision.
    """

    def __init__(
        self, scenes: Sequence[Scene], regions: RegionKind = "boxes", picture_size: int = PICTURE_SIZE, seed: int = 0
    ) -> None:
        if regions not in ("boxes", "grid"):
            raise DiptychError(f"regions: {regions!r} is not valid; {nearest(regions, ['boxes', 'grid'])}")
        self.scenes = scenes
        self.regions = regions
        self.picture_size = checked_size(picture_size)
        self.seed = seed
        self._kept: dict[int, np.ndarray] = {}

    @property
    def dim(self) -> int:
        """438."""
        return DIM

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, row: int) -> Regions:
        places, _ = self._regions(row)
        if row not in self._kept:
            picture = draw(self.scenes[row], self.picture_size)
            pixels = np.asarray(picture)
            vectors = [describe_region(picture, pixels, (x0, y0, x1, y1)) for x0, y0, x1, y1 in places.tolist()]
            self._kept[row] = np.stack(vectors).astype(np.float16)
        return Regions(
            self._kept[row].astype(np.float32), places.astype(np.float32), (self.picture_size, self.picture_size)
        )

    def things(self, row: int) -> list[int]:
        """The thing that each region of `boxes` shows, by its number in the scene; -1 for the whole picture and cells.

        This is truth to check attention against; it is not part of the features.
        """
        return self._regions(row)[1]

    def _regions(self, row: int) -> tuple[np.ndarray, list[int]]:
        """Boxes (regions, 4) int64, and the thing in each."""
        size = self.picture_size
        whole = np.array([[0, 0, size, size]], dtype=np.int64)
        if self.regions == "grid":
            edges = np.arange(GRID + 1) * size // GRID
            cells = [(edges[x], edges[y], edges[x + 1], edges[y + 1]) for y in range(GRID) for x in range(GRID)]
            return np.concatenate([np.array(cells, dtype=np.int64), whole]), [-1] * (GRID * GRID + 1)
        members = boxes(self.scenes[row], size)
        places = np.concatenate([*members, whole])
        things = [i for i, group in enumerate(members) for _ in group] + [-1]
        order = Dice("regions", self.seed, row).shuffled(range(len(places)))
        return places[order], [things[i] for i in order]
