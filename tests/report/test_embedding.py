import sys

import numpy as np
import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.report.embedding import embed, tsne
from diptych.report.model_sections import embedding_section
from tests.report import runs


def test_a_set_s_elements_know_their_slot_side_and_item() -> None:
    subject = runs.subject("dive")
    found = embed(subject)
    assert found.count == 3
    assert found.places.shape == (2 * 9 * 3, 2)
    np.testing.assert_array_equal(found.slots, np.tile([0, 1, 2], 18))
    np.testing.assert_array_equal(found.texts, np.arange(54) >= 27)
    np.testing.assert_array_equal(found.items[:27], np.repeat(np.arange(9), 3))
    np.testing.assert_array_equal(subject.owners[found.items[27:]], found.items[:27])
    html = embedding_section(found, subject, 0).body
    for slot in (1, 2, 3):
        assert f"pictures, slot {slot}" in html
        assert f"sentences, slot {slot}" in html


@pytest.mark.parametrize("case", ["vse++", "scan-t2i-mean", "camp", "mmca-gru"])
def test_other_models_have_one_point_an_item(case: str) -> None:
    subject = runs.subject(case)
    found = embed(subject)
    assert found.places.shape == (18, 2)
    assert found.count == 1
    assert np.isfinite(found.places).all()
    assert "slot" not in embedding_section(found, subject, 0).body


def test_local_vectors_stand_for_an_item_by_their_mean() -> None:
    subject = runs.subject("camp", 4)
    vectors, told = subject.matcher.points(subject.images)
    assert "mean of a picture's regions" in told
    for i in range(4):
        real = [subject.images.vectors[i, k] for k in range(subject.images.mask.shape[1]) if subject.images.mask[i, k]]
        mean = torch.stack(real).sum(0) / len(real)
        np.testing.assert_allclose(vectors[i, 0], mean / mean.norm(), atol=1e-5)


def test_the_same_map_every_time_and_neighbours_stay_together() -> None:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(30, 6)), 20 + rng.normal(size=(30, 6))])
    places = tsne(points, 1)
    np.testing.assert_array_equal(places, tsne(points, 1))
    near = np.linalg.norm(places[:30] - places[:30].mean(0), axis=1).max()
    assert np.linalg.norm(places[:30].mean(0) - places[30:].mean(0)) > near


def test_too_few_points_and_a_missing_package_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiptychError, match="too few"):
        tsne(np.zeros((3, 2)))
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(DiptychError, match=r"install diptych\[report\]"):
        tsne(np.zeros((20, 2)))
