from itertools import product

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.compare import _permutation, compare
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.protocols import evaluate_source
from diptych.evaluation.result import Evaluation
from diptych.evaluation.sources import MatrixSource


def evaluation(lift: float, seed: int = 0, images: int = 60, protocol: str = "flickr30k") -> Evaluation:
    """Random scores with right pairs lifted; one seed gives the same noise."""
    rng = np.random.default_rng(seed)
    owners = np.arange(5 * images) // 5
    scores = rng.normal(size=(images, 5 * images))
    scores[owners, np.arange(5 * images)] += lift
    if protocol == "coco-1k":
        return evaluate_source(MatrixSource(scores), owners, protocol, fold=20)
    return evaluate_scores(scores, owners, protocol)


@pytest.mark.parametrize("protocol", ["flickr30k", "coco-1k"])
def test_values_are_the_evaluations_own(protocol: str) -> None:
    runs = {"a": evaluation(2, protocol=protocol), "b": evaluation(2.5, protocol=protocol)}
    found = compare(runs, draws=50, permutations=50)
    for key in ("i2t/r@1", "t2i/r@10", "t2i/meanr", "rsum"):
        for name, run in runs.items():
            assert found.figures[f"{protocol}/{key}"][name].value == pytest.approx(run[key])
        gap = found.differences[f"{protocol}/{key}"]["b"].value
        assert gap == pytest.approx(runs["b"][key] - runs["a"][key])
    assert found.runs == ("a", "b")


def test_a_clear_difference_is_told_from_none() -> None:
    found = compare({"a": evaluation(1.5), "b": evaluation(3.0), "c": evaluation(1.5)}, permutations=999)
    clear, none = (found.differences["flickr30k/rsum"][name] for name in "bc")
    assert clear.p == pytest.approx(0.001)
    assert 0 < clear.low < clear.value < clear.high
    assert (none.value, none.low, none.high, none.p) == (0, 0, 0, 1)


def test_runs_of_the_same_quality_rarely_look_different() -> None:
    small = 0
    for seed in range(40):
        runs = {"a": evaluation(2, seed, 25), "b": evaluation(2, seed + 1000, 25)}
        gap = compare(runs, draws=100, permutations=199).differences["flickr30k/rsum"]["b"]
        small += gap.p <= 0.05
    assert small <= 6


def test_the_interval_is_that_of_drawing_pictures() -> None:
    run = evaluation(2)
    found = compare({"a": run, "b": run}, draws=4000).figures["flickr30k/t2i/r@5"]["a"]
    ranks = (run.per_query["t2i/optimistic"] <= 5).reshape(60, 5).mean(1)
    spread = 100 * ranks.std() / np.sqrt(60)
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_the_permutation_test_approaches_all_sign_flips() -> None:
    gaps = np.array([0.5, -0.2, 0.9, 0.4, 0.3, -0.1, 0.8])
    sums = [abs(np.dot(signs, gaps)) for signs in product((-1, 1), repeat=len(gaps))]
    exact = np.mean(np.array(sums) >= abs(gaps.sum()) - 1e-12)
    found = _permutation(gaps.reshape(1, 7, 1), 20_000, np.random.default_rng(0))
    assert found[0, 0] == pytest.approx(exact, abs=0.01)


def test_the_seed_makes_it_repeatable() -> None:
    runs = {"a": evaluation(1.5), "b": evaluation(1.7)}
    assert compare(runs, 100, 100) == compare(runs, 100, 100)
    assert compare(runs, 100, 100) != compare(runs, 100, 100, seed=1)


def test_runs_that_cannot_be_compared_are_named() -> None:
    with pytest.raises(DiptychError, match="at least two"):
        compare({"a": evaluation(1)})
    with pytest.raises(DiptychError, match="b: was evaluated with coco-5k, but a with flickr30k"):
        compare({"a": evaluation(1), "b": evaluation(1, protocol="coco-5k")})
    with pytest.raises(DiptychError, match="b: was evaluated on 50 pictures and 250 sentences, but a on 60 and 300"):
        compare({"a": evaluation(1), "b": evaluation(1, images=50)})
    other = evaluation(1)
    other.per_query["image_ids"] = np.array(["x"] * 60)
    with pytest.raises(DiptychError, match="not evaluated on the same queries as a: image_ids differ"):
        compare({"a": evaluation(1), "b": other})


def seeds(lift: float, *numbers: int) -> list[Evaluation]:
    return [evaluation(lift, seed) for seed in numbers]


def test_of_several_seeds_the_figure_is_the_mean_and_the_spread_their_deviation() -> None:
    a, b = seeds(2, 0, 1, 2), seeds(2.5, 3, 4)
    found = compare({"a": a, "b": b, "c": evaluation(2)}, draws=50, permutations=50)
    assert found.seeds == (3, 2, 1)
    for key in ("i2t/r@1", "rsum"):
        values = [run[key] for run in a]
        assert found.figures[f"flickr30k/{key}"]["a"].value == pytest.approx(np.mean(values))
        assert found.spread[f"flickr30k/{key}"]["a"] == pytest.approx(np.std(values, ddof=1))
        gap = np.mean([run[key] for run in b]) - np.mean(values)
        assert found.differences[f"flickr30k/{key}"]["b"].value == pytest.approx(gap)
    assert found.spread["flickr30k/rsum"].keys() == {"a", "b"}


def test_one_seed_is_compared_as_ever() -> None:
    a, b = evaluation(1.5), evaluation(1.7)
    assert compare({"a": [a], "b": (b,)}, 100, 100) == compare({"a": a, "b": b}, 100, 100)


def test_the_pooled_test_flips_each_pictures_mean_over_seeds() -> None:
    """A loop over all sign flips of the few pictures' mean gaps."""
    a = [evaluation(1.0, seed, 6) for seed in (0, 1)]
    b = [evaluation(2.0, seed, 6) for seed in (2, 3, 4)]

    def hits(runs: list[Evaluation]) -> np.ndarray:
        ranks = [(run.per_query["i2t/optimistic"] + run.per_query["i2t/pessimistic"]) / 2 for run in runs]
        return np.mean([100 * (rank <= 1) / 6 for rank in ranks], 0)

    gaps = hits(b) - hits(a)
    sums = [abs(np.dot(signs, gaps)) for signs in product((-1, 1), repeat=6)]
    exact = np.mean(np.array(sums) >= abs(gaps.sum()) - 1e-9)
    found = compare({"a": a, "b": b}, draws=10, permutations=20_000).differences["flickr30k/i2t/r@1"]["b"]
    assert found.p == pytest.approx(exact, abs=0.015)


def test_seeds_that_differ_much_make_the_interval_wide() -> None:
    alike, apart = seeds(2, 0, 1, 2), [evaluation(lift, seed) for seed, lift in enumerate((1.0, 2.0, 3.0))]
    found = compare({"alike": alike, "apart": apart}, draws=400, permutations=10).figures["flickr30k/rsum"]
    width = {name: interval.high - interval.low for name, interval in found.items()}
    assert width["apart"] > 2 * width["alike"]


def test_a_seed_that_saw_other_queries_is_named() -> None:
    with pytest.raises(DiptychError, match="b, seed 2 of 2: was evaluated on 50 pictures"):
        compare({"a": evaluation(1), "b": [evaluation(1), evaluation(1, images=50)]})
    with pytest.raises(DiptychError, match="b: expected at least one evaluation"):
        compare({"a": evaluation(1), "b": []})
