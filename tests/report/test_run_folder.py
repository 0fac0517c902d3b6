import json
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.report.run_folder import read_log, read_run
from diptych.report.run_section import progress_of
from diptych.training.checkpoints import Position
from tests.report import runs


@pytest.mark.parametrize(
    ("position", "patience", "finished", "told"),
    [
        (Position(3, 0, 30, 9.0, 2), None, True, "finished: 3 of 3 epochs, 30 steps; the best was epoch 3"),
        (
            Position(2, 0, 20, 9.0, 0),
            1,
            True,
            "finished, stopped early after training.patience of 1 without a better validation RSUM: 2 of 3 epochs",
        ),
        (Position(2, 0, 20, 9.0, 1), 1, False, "unfinished: 2 of 3 epochs, 20 steps"),
        (Position(1, 4, 14, 9.0, 0), None, False, "1 of 3 epochs and 4 steps of the next, 14 steps in all"),
    ],
)
def test_how_far_a_run_came(
    position: Position, patience: int | None, finished: bool, told: str, tmp_path: Path
) -> None:
    recipe = runs.recipe(runs.KINDS["vse++"])
    recipe = replace(recipe, training=replace(recipe.training, patience=patience))
    run = read_run(runs.write_run(tmp_path / "run", recipe, ["a dog"], position))
    assert run.finished is finished
    assert told in progress_of(run)


def test_the_log_as_it_was_written(tmp_path: Path) -> None:
    runs.write_log(tmp_path / "metrics.jsonl")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 31, "lo\n[1]\n"x"\n{"step": 31}\n' + json.dumps({"step": 32, "loss": float("nan"), "lr": 1})
        )
    log = read_log(tmp_path / "metrics.jsonl")
    assert log.steps == list(range(1, 31))
    assert log.losses == [40 / step for step in range(1, 31)]
    assert [epoch for epoch, _ in log.validations] == [1, 2, 3]
    assert log.best == (3, {**runs.FIGURES, "rsum": 105.0})
    assert log.unreadable == 4


def test_a_run_with_nothing_but_a_recipe(tmp_path: Path) -> None:
    write_json(tmp_path / "recipe.json", to_tree(runs.recipe(runs.KINDS["camp"])))
    run = read_run(tmp_path)
    assert (run.position, run.model, run.finished, run.evaluations, run.dates) == (None, None, False, {}, None)
    assert "no checkpoint yet" in progress_of(run)


@pytest.mark.parametrize(
    ("file", "message"), [(None, "no such run"), ("x.txt", "without recipe.json"), ("config.json", "a model folder")]
)
def test_what_is_no_run_is_refused(file: str | None, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if file is not None:
        folder.mkdir()
        (folder / file).write_text("{}")
    with pytest.raises(DiptychError, match=message):
        read_run(folder)


def test_an_evaluation_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    run = runs.scenes_run(tmp_path / "run", "vse++")
    (run / "evaluations").mkdir()
    (run / "evaluations" / "all-pairs-test.json").write_text("{}")
    found = read_run(run)
    assert found.evaluations == {}
    assert "The evaluation all-pairs-test cannot be read" in found.problems[0]
    assert str(tmp_path) not in found.problems[0]
