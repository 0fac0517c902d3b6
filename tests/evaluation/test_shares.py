import numpy as np
import pytest

from diptych.evaluation.shares import clustered, share, weighted_auc


def naive_auc(scores: np.ndarray, true: np.ndarray, weights: np.ndarray) -> float:
    won, total = 0.0, 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if true[i] and not true[j]:
                pair = weights[i] * weights[j]
                won += pair * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
                total += pair
    return won / total


@pytest.mark.parametrize("seed", range(5))
def test_the_area_is_that_of_a_loop_over_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, 17).astype(float)
    true = np.arange(17) % 3 == 0
    weights = rng.integers(0, 4, 17).astype(float) + (np.arange(17) < 2)
    assert weighted_auc(scores, true, weights) == pytest.approx(naive_auc(scores, true, weights))


def test_an_area_of_one_kind_alone_is_open() -> None:
    assert np.isnan(weighted_auc(np.arange(3.0), np.ones(3, bool), np.ones(3)))
    figure = clustered(lambda weights: weighted_auc(np.arange(3.0), np.ones(3, bool), weights), np.arange(3))
    assert figure is None


def test_a_share_counts_questions_and_pictures() -> None:
    found = share(np.array([True, True, False, True]), np.array([5, 5, 9, 7]))
    assert found is not None
    assert (found.value, found.count, found.pictures) == (75.0, 4, 3)
    assert found.low <= found.value <= found.high
    assert share(np.zeros(0, bool), np.zeros(0, int)) is None
    assert found.told().startswith("75.0 ± ")


def test_questions_on_one_picture_do_not_make_an_interval_narrower() -> None:
    rng = np.random.default_rng(0)
    hits = rng.random(200) < 0.7
    alone = share(hits, np.arange(200))
    tenfold = share(np.repeat(hits, 10), np.repeat(np.arange(200), 10))
    apart = share(np.repeat(hits, 10), np.arange(2000))
    assert alone is not None
    assert tenfold is not None
    assert apart is not None
    assert (tenfold.low, tenfold.high) == (alone.low, alone.high)
    assert apart.high - apart.low < (alone.high - alone.low) / 2
    # About that of the normal approximation: 2 x 1.96 deviations of a mean.
    width = 100 * 2 * 1.96 * np.sqrt(hits.mean() * (1 - hits.mean()) / 200)
    assert alone.high - alone.low == pytest.approx(width, rel=0.15)
