import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.depth_curve import depth_curve
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.rerank import evaluate_reranked
from diptych.scoring import score_all
from diptych.scoring.fusion import Fusion
from tests.evaluation.test_rerank import DATA, matcher


@pytest.mark.parametrize("fusion", ["replace", "sum", "rrf"])
def test_a_point_is_what_two_matchers_give_at_that_depth(fusion: Fusion) -> None:
    fast, slow = matcher(1), matcher(2)
    scores = [score_all(m, *encode_collection(m, DATA)).numpy() for m in (fast, slow)]
    depths = [0.1, 0.3, 1.0]
    points = depth_curve(scores[0], scores[1], DATA.captions()[1], depths, [fusion])
    assert [point.depth for point in points] == depths
    for point in points:
        expected = evaluate_reranked(fast, slow, DATA, point.depth, fusion=fusion)
        for name, value in point.figures.items():
            # Of sentences that are alike, which of two equal ones is kept is nobody's to say.
            assert value == pytest.approx(expected.figures[name], abs=0.7), (point.depth, name)


def test_scores_without_ties_give_the_very_ranks() -> None:
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(6), 3)
    first, second = rng.normal(size=(2, 6, 18)).astype(np.float32)
    (point,) = depth_curve(first, second, owners, [1.0], ["replace"])
    assert point.figures["rsum"] == pytest.approx(evaluate_scores(second, owners)["rsum"])
    (point,) = depth_curve(first, second, owners, [1e-9], ["replace"])  # one candidate: nothing to reorder
    assert point.figures["rsum"] == pytest.approx(evaluate_scores(first, owners)["rsum"])


def test_nonsense_is_refused() -> None:
    scores = np.eye(4, dtype=np.float32)
    with pytest.raises(DiptychError, match="depth: expected a part above 0 and at most 1, got 2"):
        depth_curve(scores, scores, np.arange(4), [0.5, 2], ["sum"])
    with pytest.raises(DiptychError, match="expected the same pairs"):
        depth_curve(scores, scores[:2], np.arange(4), [0.5], ["sum"])
