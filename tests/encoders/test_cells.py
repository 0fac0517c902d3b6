"""Fewer cells of a grid."""

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.data.batches import LocalFeatures
from diptych.encoders.cells import pool_cells
from diptych.encoders.images import FeatureConfig, build_image_encoder


def test_a_cell_is_the_mean_of_those_it_covers() -> None:
    cells = torch.randn(2, 16, 3)
    pooled = pool_cells(cells, 2)
    for row in range(2):
        for column in range(2):
            covered = [4 * (2 * row + i) + 2 * column + j for i in range(2) for j in range(2)]
            torch.testing.assert_close(pooled[:, 2 * row + column], cells[:, covered].mean(1))


def test_stretches_that_do_not_divide_overlap() -> None:
    cells = torch.randn(1, 9, 2)
    pooled = pool_cells(cells, 2)
    torch.testing.assert_close(pooled[:, 0], cells[:, [0, 1, 3, 4]].mean(1))
    torch.testing.assert_close(pooled[:, 3], cells[:, [4, 5, 7, 8]].mean(1))


def test_a_grid_of_its_own_size_stays_as_it_is() -> None:
    cells = torch.randn(3, 9, 4)
    torch.testing.assert_close(pool_cells(cells, 3), cells)


@pytest.mark.parametrize(("cells", "side"), [(8, 2), (4, 3)])
def test_what_is_no_such_grid_is_refused(cells: int, side: int) -> None:
    with pytest.raises(DiptychError, match=f"{cells} local vectors a picture; expected a square grid"):
        pool_cells(torch.zeros(1, cells, 2), side)


def test_an_encoder_gives_as_many_vectors_as_cells() -> None:
    torch.manual_seed(0)
    encoder = build_image_encoder(FeatureConfig(feature_dim=5, cells=2), dim=7)
    batch = LocalFeatures(torch.randn(3, 16, 5), torch.ones(3, 16, dtype=torch.bool))
    encoded = encoder(batch)
    assert encoded.vectors.shape == (3, 4, 7)
    assert encoded.mask.shape == (3, 4)
    torch.testing.assert_close(encoded.vectors, encoder.fc(pool_cells(batch.vectors, 2)))
