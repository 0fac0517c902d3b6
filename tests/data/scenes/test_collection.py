"""Scenes as a collection, and their features."""

import pickle

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.data.batches import pad_regions
from diptych.data.scenes import SceneFeatures, boxes, captioned, captioned_scenes, draw, scenes_collection
from diptych.data.scenes.collection import split_counts
from diptych.data.scenes.descriptor import describe_region


def test_a_collection_opens_its_pictures() -> None:
    collection = scenes_collection(20, seed=3, picture_size=64)
    assert collection.splits == {"train": 16, "val": 2, "test": 2}
    assert collection.features is None
    item = collection.items[7]
    assert item.open is not None
    assert item.open().tobytes() == draw(captioned(3, 7).scene, 64).tobytes()
    assert [s.text for s in item.sentences] == [c.text for c in captioned(3, 7).captions]
    assert len({s.id for i in collection.items for s in i.sentences}) == 100
    assert len({i.id for i in collection.items}) == 20
    again = captioned(int(item.metadata["seed"]), int(item.metadata["index"]))
    assert again.id == item.id


def test_items_can_be_sent_to_other_processes() -> None:
    item = scenes_collection(2).items[1]
    copy = pickle.loads(pickle.dumps(item))
    assert item.open is not None
    assert copy.open().tobytes() == item.open().tobytes()


@pytest.mark.parametrize(
    ("count", "splits", "expected"),
    [
        (10, (0.8, 0.1, 0.1), (8, 1, 1)),
        (10, (7, 2, 1), (7, 2, 1)),
        (3, (0, 0.5, 0.5), (0, 2, 1)),
        (1, (1, 0, 0), (1, 0, 0)),
        (5, (1.0, 0.0, 0.0), (5, 0, 0)),
    ],
)
def test_splits(count: int, splits: tuple[float, ...], expected: tuple[int, ...]) -> None:
    assert split_counts(count, splits) == expected


@pytest.mark.parametrize("splits", [(0.5, 0.1, 0.1), (8, 1, 2), (1, 0), (1.5, -0.5, 0)])
def test_splits_that_do_not_fit_are_refused(splits: tuple[float, ...]) -> None:
    with pytest.raises(DiptychError, match=r"splits: .* sum to 10"):
        scenes_collection(10, splits=splits)


def test_no_scene_at_all_is_refused() -> None:
    with pytest.raises(DiptychError, match="count: 0"):
        scenes_collection(0)


def test_box_features_are_pixels_and_places() -> None:
    scenes = [c.scene for c in captioned_scenes(12, 1)]
    features = SceneFeatures(scenes, "boxes", 96)
    assert len(features) == 12
    for row, scene in enumerate(scenes):
        regions = features[row]
        assert regions.size == (96, 96)
        assert regions.boxes is not None
        assert regions.vectors.dtype == np.float32
        assert regions.vectors.shape == (sum(t.count for t in scene.things) + 1, features.dim)
        expected = {(tuple(b), i) for i, members in enumerate(boxes(scene, 96)) for b in members.tolist()}
        expected.add(((0, 0, 96, 96), -1))
        things = features.things(row)
        assert {(tuple(b), t) for b, t in zip(regions.boxes.astype(int).tolist(), things, strict=True)} == expected
        picture = np.asarray(draw(scene, 96)).astype(np.float64)
        for vector, (x0, y0, x1, y1) in zip(regions.vectors, regions.boxes.astype(int), strict=True):
            place = [x0 / 96, y0 / 96, x1 / 96, y1 / 96, (x1 - x0) / 96, (y1 - y0) / 96]
            assert np.allclose(vector[-6:], place, atol=1e-3)
            patch = (vector[:300].reshape(10, 10, 3) + 1) * 127.5
            assert np.abs(patch.mean((0, 1)) - picture[y0:y1, x0:x1].mean((0, 1))).max() < 8
    again = SceneFeatures(scenes)
    assert np.array_equal(again[5].vectors, features[5].vectors)
    assert np.array_equal(again[5].vectors, again[5].vectors)


def slow_description(crop: np.ndarray, box: tuple[int, ...], size: int) -> tuple[list[float], ...]:
    """Edges, changes, levels and lengths of a crop (h, w, 3) from 0 to 1, a pixel at a time."""
    height, width = crop.shape[:2]
    grey = crop.mean(2)
    edges = np.zeros((3, 3, 8))
    for y in range(height):
        for x in range(width):
            dx = grey[y, x + 1] - grey[y, x - 1] if 0 < x < width - 1 else 0.0
            dy = grey[y + 1, x] - grey[y - 1, x] if 0 < y < height - 1 else 0.0
            direction = int(np.floor(np.arctan2(dy, dx) / np.pi * 8 + 0.5)) % 8
            edges[y * 3 // height, x * 3 // width, direction] += np.hypot(dx, dy)
    changes = []
    for sx, sy in ((1, 0), (0, 1), (1, 1), (-1, 1)):
        for far in range(1, 7):
            found = [
                abs(grey[y + sy * far, x + sx * far] - grey[y, x])
                for y in range(height - sy * far)
                for x in range(width)
                if 0 <= x + sx * far < width
            ]
            changes.append(np.mean(found) / (grey.std() + 0.02) if found else 0.0)
    levels = [
        sorted(crop[:, :, channel].reshape(-1))[int(q * height * width)] * 2 - 1
        for channel in range(3)
        for q in np.linspace(0.05, 0.95, 10)
    ]
    longest = max(box[2] - box[0], box[3] - box[1]) / size
    lengths = [np.tanh((longest - known) / 0.03) for known in (0.12, 0.16, 0.2, 0.24, 0.3, 0.4)]
    return list(np.sqrt(edges.reshape(-1) * 72 / (height * width))), changes, levels, lengths


@pytest.mark.parametrize("box", [(0, 0, 96, 96), (10, 20, 31, 36), (40, 40, 44, 43), (5, 6, 6, 7), (3, 3, 4, 30)])
def test_a_region_is_described_by_its_pixels(box: tuple[int, int, int, int]) -> None:
    picture = draw(captioned(0, 4).scene)
    pixels = np.asarray(picture)
    vector = describe_region(picture, pixels, box)
    crop = pixels[box[1] : box[3], box[0] : box[2]].astype(np.float64) / 255
    edges, changes, levels, lengths = slow_description(crop, box, 96)
    assert np.allclose(vector[372:396], changes, atol=1e-4)
    assert np.allclose(vector[396:426], levels, atol=1e-5)
    assert np.allclose(vector[426:432], lengths, atol=1e-5)
    # A direction on the border of two may fall on either side: compare what does not depend on it.
    squares = (vector[300:372] ** 2).reshape(9, 8), (np.array(edges) ** 2).reshape(9, 8)
    assert np.allclose(squares[0].sum(1), squares[1].sum(1), atol=1e-4)
    assert np.isclose(squares[0], squares[1], atol=1e-3).mean() > 0.9


def test_the_order_of_boxes_says_nothing() -> None:
    features = SceneFeatures([c.scene for c in captioned_scenes(60, 1)])
    firsts = [features.things(row)[0] for row in range(60)]
    assert {-1, 0, 1} <= set(firsts)


def test_grid_features_cover_the_picture_cell_by_cell() -> None:
    features = SceneFeatures([captioned(0, 0).scene], "grid", 100)
    regions = features[0]
    assert regions.boxes is not None
    assert regions.vectors.shape == (37, features.dim)
    covered = np.zeros((100, 100), dtype=int)
    for x0, y0, x1, y1 in regions.boxes[:36].astype(int):
        covered[y0:y1, x0:x1] += 1
    assert (covered == 1).all()
    assert features.things(0) == [-1] * 37
    assert regions.boxes[36].tolist() == [0, 0, 100, 100]


def test_a_collection_with_features_feeds_a_batch() -> None:
    collection = scenes_collection(6, regions="boxes").split("train")
    assert collection.features is not None
    batch = pad_regions([collection.features[item.row] for item in collection.items if item.row is not None])
    assert batch.vectors.shape[0] == 4
    assert batch.vectors.shape[2] == collection.features.dim == 438


def test_unknown_regions_are_refused() -> None:
    with pytest.raises(DiptychError, match="did you mean 'boxes'"):
        SceneFeatures([captioned(0, 0).scene], "box")  # type: ignore[arg-type]
