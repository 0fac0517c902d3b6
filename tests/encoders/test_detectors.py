from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diptych.common.errors import DiptychError
from diptych.encoders.detectors import Detector, DetectorPreprocess, confidences, load_detector, to_corners
from diptych.encoders.preprocess import normalise
from tests.encoders.pictures import picture
from tests.encoders.tiny_models import DETECTORS, detr, save, stirred

SOFTMAX = {"detr", "yolos"}
STATISTICS = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture(scope="module")
def detectors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Detector]:
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("detectors")
    processor = {"size": {"shortest_edge": 48, "longest_edge": 80}}
    square = {"size": {"height": 64, "width": 64}, "do_normalize": False}
    return {
        name: load_detector(
            save(stirred(make(), 0.3), root / name, square if name == "rt-detr" else processor), regions=4
        )
        for name, make in DETECTORS.items()
    }


@pytest.mark.parametrize("name", DETECTORS)
def test_regions_are_the_surest_queries_of_one_picture(detectors: dict[str, Detector], name: str) -> None:
    detector = detectors[name]
    image = picture(90, 60)
    (found,) = detector.regions([image])
    pixels = normalise([detector.prepare(image)], detector.preprocess.mean, detector.preprocess.std)
    with torch.no_grad():
        output: Any = detector.model(pixel_values=pixels)
    scores = []
    for logits in output.logits[0].double():
        classes = logits.softmax(0)[:-1] if name in SOFTMAX else logits.sigmoid()
        scores.append(float(classes.max()))
    order = sorted(range(7), key=lambda query: -scores[query])[:4]
    queries = output.last_hidden_state[0, -7:]
    assert found.boxes is not None
    assert found.scores is not None
    assert found.vectors.shape == (4, detector.dim)
    for place, query in enumerate(order):
        x, y, width, height = output.pred_boxes[0, query].tolist()
        corners = np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2]).clip(0, 1)
        np.testing.assert_allclose(found.vectors[place], queries[query], atol=1e-4)
        np.testing.assert_allclose(found.boxes[place], corners * [90, 60, 90, 60], atol=1e-2)
        assert found.scores[place] == pytest.approx(scores[query], abs=1e-5)
    assert found.size == (90, 60)


@pytest.mark.parametrize("name", DETECTORS)
def test_a_pictures_regions_do_not_depend_on_its_neighbours(detectors: dict[str, Detector], name: str) -> None:
    images = [picture(90, 60, 0), picture(50, 70, 1), picture(90, 60, 2), picture(64, 64, 3)]
    together = detectors[name].regions(images)
    for image, found in zip(images, together, strict=True):
        (alone,) = detectors[name].regions([image])
        np.testing.assert_allclose(found.vectors, alone.vectors, atol=1e-4)
        np.testing.assert_allclose(found.boxes, alone.boxes, atol=1e-2)  # type: ignore[arg-type]


def test_more_regions_than_queries_gives_all_queries(tmp_path: Path) -> None:
    detector = load_detector(save(stirred(detr()), tmp_path), 48, regions=50)
    assert len(detector.regions([picture()])[0].vectors) == 7
    with pytest.raises(DiptychError, match="regions: expected at least 1"):
        load_detector(str(tmp_path), regions=0)


def test_no_object_never_counts() -> None:
    logits = torch.tensor([[[0.0, 1.0, 9.0], [0.0, 3.0, 0.0]]])  # two labels and no-object
    found = confidences(logits, labels=2)
    torch.testing.assert_close(found, logits.softmax(-1)[..., 1])
    torch.testing.assert_close(confidences(logits, labels=3), logits.sigmoid().amax(-1))


def test_boxes_are_cut_at_the_edges() -> None:
    found = to_corners(torch.tensor([[0.5, 0.5, 0.2, 0.4], [0.1, 0.9, 0.4, 0.4]]))
    torch.testing.assert_close(found, torch.tensor([[0.4, 0.3, 0.6, 0.7], [0.0, 0.7, 0.3, 1.0]]))


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_sizes_are_those_of_detrs_own_processor(width: int, height: int) -> None:
    from transformers.image_transforms import get_size_with_aspect_ratio

    expected = get_size_with_aspect_ratio((height, width), 800, 1333)
    found_width, found_height = DetectorPreprocess(800, 1333, *STATISTICS).target((width, height))
    if min(expected) > 0:  # their processor makes nothing of a picture like a thread
        assert (found_height, found_width) == expected
    assert min(found_width, found_height) >= 1


def test_square_and_multiples() -> None:
    assert DetectorPreprocess(640, None, *STATISTICS).target((1000, 20)) == (640, 640)
    assert DetectorPreprocess(100, 300, *STATISTICS, multiple=16).target((150, 100)) == (144, 96)


def test_settings_come_from_the_folder_and_size_scales_both_edges(tmp_path: Path) -> None:
    folder = save(detr(), tmp_path, {"size": {"shortest_edge": 40, "longest_edge": 60}, "image_mean": [0.5] * 3})
    own, asked = load_detector(folder).preprocess, load_detector(folder, 80).preprocess
    assert (own.shortest, own.longest) == (40, 60)
    assert (asked.shortest, asked.longest) == (80, 120)
    assert load_detector(folder).size == 40
    (tmp_path / "preprocessor_config.json").write_text('{"size": 50, "max_size": 70}')  # an older way to say it
    assert (load_detector(folder).preprocess.shortest, load_detector(folder).preprocess.longest) == (50, 70)
    (tmp_path / "preprocessor_config.json").unlink()
    plain = load_detector(folder).preprocess
    assert (plain.shortest, plain.longest, plain.mean[0]) == (800, 1333, pytest.approx(0.485))


def test_a_detector_that_needs_another_package_is_told(tmp_path: Path) -> None:
    folder = Path(save(detr(), tmp_path))
    text = (folder / "config.json").read_text().replace('"model_type": "resnet"', '"model_type": "timm_backbone"')
    (folder / "config.json").write_text(text)
    with pytest.raises(DiptychError, match="timm"):
        load_detector(str(folder))


def test_a_square_that_does_not_fit_the_strides_is_refused(tmp_path: Path) -> None:
    folder = save(DETECTORS["rt-detr"](), tmp_path)
    assert load_detector(folder, 96).size == 96
    with pytest.raises(DiptychError, match="does not work on squares of 48 pixels"):
        load_detector(folder, 48)
