import json
from pathlib import Path

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.evaluation.evaluate import evaluate_scores
from diptych.evaluation.result import Evaluation
from diptych.evaluation.runs import load_evaluations, run_names


def result(protocol: str = "flickr30k", split: str = "test", seed: int = 0) -> Evaluation:
    scores = np.random.default_rng(seed).normal(size=(6, 12)).round(1)
    ids = [f"i{i}" for i in range(6)], [f"s{j}" for j in range(12)]
    return evaluate_scores(scores, np.arange(12) // 2, protocol, *ids).described(
        model="m", data="d", split=split, notes=["n"]
    )


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    before = result()
    path = before.save(tmp_path / "evaluations")
    assert path.name == "flickr30k-test.json"
    after = Evaluation.load(path)
    assert after.tree() == before.tree()
    assert after.per_query.keys() == before.per_query.keys()
    assert all(np.array_equal(after.per_query[key], before.per_query[key]) for key in before.per_query)
    assert sorted(p.name for p in path.parent.iterdir()) == ["flickr30k-test.json", "flickr30k-test.npz"]


def test_the_flat_object_has_the_figures_at_the_top() -> None:
    flat = json.loads(json.dumps(result().flat()))
    assert flat["protocol"] == "flickr30k"
    assert flat["images"] == 6
    assert 0 <= flat["flickr30k/rsum"] <= 600


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = result().save(tmp_path)
    path.with_suffix(".npz").write_bytes(b"broken")
    with pytest.raises(DiptychError, match=r"flickr30k-test.npz: expected the per-query results"):
        Evaluation.load(path)
    path.write_text("{}")
    with pytest.raises(DiptychError, match=r"flickr30k-test.json: format: expected"):
        Evaluation.load(path)


def test_which_evaluation_of_a_run(tmp_path: Path) -> None:
    runs = [str(tmp_path / name) for name in "ab"]
    for run in runs:
        result().save(Path(run) / "evaluations")
    assert [e.protocol for e in load_evaluations(runs)] == ["flickr30k"] * 2
    result("coco-5k").save(Path(runs[0]) / "evaluations")
    assert [e.protocol for e in load_evaluations(runs)] == ["flickr30k"] * 2
    result("coco-5k").save(Path(runs[1]) / "evaluations")
    with pytest.raises(DiptychError, match="they share coco-5k on test, flickr30k on test; choose with --protocol"):
        load_evaluations(runs)
    assert [e.protocol for e in load_evaluations(runs, "coco-5k")] == ["coco-5k"] * 2
    with pytest.raises(DiptychError, match="has no evaluation with coco-1k"):
        load_evaluations(runs, "coco-1k")
    with pytest.raises(DiptychError, match="no such run"):
        load_evaluations([runs[0], str(tmp_path / "c")])
    (tmp_path / "c").mkdir()
    with pytest.raises(DiptychError, match="holds no evaluations"):
        load_evaluations([runs[0], str(tmp_path / "c")])


def test_run_names_are_short_and_different() -> None:
    assert run_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert run_names(["x/vse", "y/vse", "z"]) == ["x/vse", "y/vse", "z"]
    assert run_names(["x/a", "x/a"]) == ["x/a (1)", "x/a (2)"]
