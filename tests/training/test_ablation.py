import json
import sys
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.published import published
from diptych.training import ablation
from diptych.training.ablation import Row, ablation_table, interval, plan, run_trial
from diptych.training.loop import Device
from diptych.training.recipe import read_recipe, variant_names

RECIPES = sorted((Path(__file__).parent.parent.parent / "recipes").glob("*.toml"))
SMALL = """
[model]
kind = "vse"
dim = 16
image = {kind = "features", feature_dim = 438}
[data]
kind = "scenes"
train = 20
validation = 10
test = 10
[loss]
kind = "hinge"
[training]
epochs = 1
batch_size = 16
[variants.all-negatives]
loss.negatives = "all"
"""


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_every_recipe_and_variant_is_valid(path: Path) -> None:
    for variant in [None, *variant_names(path)]:
        assert read_recipe(path, variant).variant == variant


def test_done_trials_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    trials = plan(tmp_path / "small.toml", tmp_path / "out", None, [0])
    assert [t.variant for t in trials] == ["main", "all-negatives"]
    first = run_trial(trials[0], "all-pairs", Device("cpu"))
    assert first is not None

    def fail(*arguments: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(ablation, "train", fail)
    again = run_trial(trials[0], "all-pairs", Device("cpu"))
    assert again is not None
    assert again.figures == first.figures
    with pytest.raises(AssertionError, match="trained again"):
        run_trial(trials[1], "all-pairs", Device("cpu"))


def test_an_unknown_variant_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    with pytest.raises(DiptychError, match=r"'all-negative'.*'all-negatives'"):
        plan(tmp_path / "small.toml", tmp_path, ["all-negative"], [0])


def test_the_interval_is_students() -> None:
    assert interval([3.0]) is None
    # The 97.5 % points of Student's t with 2 and 24 degrees of freedom, as tables print them.
    assert interval([1.0, 2.0, 3.0]) == pytest.approx(4.30265 * 1.0 / np.sqrt(3), rel=1e-5)
    many = [1.0, 3.0] * 12 + [2.0]
    assert interval(many) == pytest.approx(2.06390 * np.std(many, ddof=1) / 5, rel=1e-5)


def test_without_scipy_the_table_has_means_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    rng = np.random.default_rng(0)
    evaluations = tuple(evaluate_scores(rng.standard_normal((6, 30))) for _ in range(2))
    table = ablation_table([Row("main", evaluations, None)], "title")
    assert table.rows[0][-1] == f"{np.mean([e['rsum'] for e in evaluations]):.1f}"
    assert table.records[0]["rsum/half-width"] is None
    assert table.notes == (
        "ours: mean of 2 seeds; with scipy, which diptych[report] installs, the same command adds the 95 % interval",
    )
    assert ablation_table([Row("main", evaluations[:1], None)], "title").notes == ("ours: one seed",)


def test_the_table_has_ours_and_the_papers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    evaluations = tuple(evaluate_scores(rng.standard_normal((6, 30))) for _ in range(2))
    row = published("camp/table-3").row("Base model")
    table = ablation_table([Row("main", evaluations, None), Row("base", evaluations[:1], row)], "title")
    assert [line[0] for line in table.rows] == ["main", "base", "  paper: Base model"]
    assert "±" in str(table.rows[0][-1])
    assert table.rows[2][-1] == pytest.approx(63.5 + 87.1 + 93.1 + 46.2 + 74.2 + 83.4)
    json.dumps(table.records)
