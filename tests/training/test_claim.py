import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from diptych.common.config import to_tree
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.training.claim import alone, claim, locked
from diptych.training.loop import Device, Outcome, train
from diptych.training.recipe import Recipe, load_run_recipe
from tests.training import toy
from tests.training.test_loop import ENVIRONMENT, ROOT, metrics

HOLD = """
import sys
from pathlib import Path
from diptych.training.claim import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


TRY = """
import sys
from pathlib import Path
from diptych.training.claim import alone

with alone(Path(sys.argv[1])) as free:
    print(free)
"""


def go(recipe: Recipe, run: Path) -> Outcome:
    return train(recipe, run, Device("cpu"), toy.splits())


def other(run: Path) -> "subprocess.Popen[str]":
    """Another process that has the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    "wrong",
    [
        {"multipliers": {"image_encodr": 0.1}},
        {"frozen_epochs": {"image_encodr": 1}},
        {"hold_pictures": 32},
        {"terms": {"diversity": 0.1}},
    ],
    ids=str,
)
def test_a_start_that_failed_leaves_the_folder_to_the_corrected_command(
    wrong: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(DiptychError):
        go(toy.recipe(epochs=1, **wrong), tmp_path / "run")
    assert go(toy.recipe(epochs=1), tmp_path / "run").finished
    assert json.loads((tmp_path / "run" / "recipe.json").read_text()) == to_tree(toy.recipe(epochs=1))


def test_data_that_is_not_there_claims_nothing(tmp_path: Path) -> None:
    with pytest.raises(DiptychError):
        train(toy.recipe(epochs=1), tmp_path / "run", Device("cpu"))
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_a_second_trainer_in_a_folder_is_told_in_one_sentence(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "run")
    before = metrics(tmp_path / "run")
    first = other(tmp_path / "run")
    with pytest.raises(
        DiptychError, match=r"run: another process is training there; wait for it, or give another --out$"
    ):
        go(toy.recipe(epochs=2), tmp_path / "run")
    assert metrics(tmp_path / "run") == before
    first.communicate("")
    assert go(toy.recipe(epochs=2), tmp_path / "run").finished


def test_a_trainer_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    first = other(tmp_path)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with locked(tmp_path):
        pass


def test_a_folder_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(DiptychError):
        go(toy.recipe(epochs=1, hold_pictures=32), tmp_path / "run")
    other(tmp_path / "run").communicate("")


def test_a_finished_run_goes_on_for_more_epochs(tmp_path: Path) -> None:
    go(toy.recipe(epochs=2), tmp_path / "grown")
    outcome = go(toy.recipe(epochs=4), tmp_path / "grown")
    assert outcome.finished
    assert outcome.position.epoch == 4
    go(toy.recipe(epochs=4), tmp_path / "whole")
    assert metrics(tmp_path / "grown") == metrics(tmp_path / "whole")  # the schedule is constant
    assert json.loads((tmp_path / "grown" / "recipe.json").read_text())["training"]["epochs"] == 4


def test_epochs_may_not_shrink(tmp_path: Path) -> None:
    go(toy.recipe(epochs=2), tmp_path / "run")
    with pytest.raises(DiptychError, match=r"run: holds a run of 2 epochs; training.epochs may grow, and 1 are fewer"):
        go(toy.recipe(epochs=1), tmp_path / "run")


def test_every_key_that_differs_is_named(tmp_path: Path) -> None:
    go(toy.recipe(epochs=1), tmp_path / "run")
    with pytest.raises(DiptychError, match=r"another recipe \(training\.batch_size, training\.epochs differ\); give"):
        go(toy.recipe(epochs=2, batch_size=4), tmp_path / "run")
    with pytest.raises(DiptychError, match=r"another recipe \(training\.multipliers\.image_encoder differs\); give"):
        go(toy.recipe(epochs=1, multipliers={"image_encoder": 0.5}), tmp_path / "run")


def test_a_key_without_a_value_is_no_difference(tmp_path: Path) -> None:
    recipe = toy.recipe(epochs=1)
    go(recipe, tmp_path / "run")
    tree = json.loads((tmp_path / "run" / "recipe.json").read_text())
    del tree["paper"], tree["training"]["clip"]
    write_json(tmp_path / "run" / "recipe.json", tree)
    claim(tmp_path / "run", recipe)
    with pytest.raises(DiptychError, match=r"\(variant differs\)"):
        claim(tmp_path / "run", replace(recipe, variant="other"))


def test_what_a_run_is_shown_beside_is_no_other_recipe(tmp_path: Path) -> None:
    recipe = toy.recipe(epochs=1)
    go(recipe, tmp_path / "run")
    beside = replace(
        recipe, dataset="coco", paper="camp/table-1", paper_row="CAMP (ours)", changed=("training.epochs",)
    )
    claim(tmp_path / "run", beside)
    assert load_run_recipe(tmp_path / "run") == beside


def test_a_name_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    def free_elsewhere() -> str:
        command = [sys.executable, "-c", TRY, str(tmp_path / "new" / "name")]
        return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True, check=True).stdout

    with alone(tmp_path / "new" / "name") as free:
        assert free
        assert free_elsewhere() == "False\n"
    assert free_elsewhere() == "True\n"


def test_a_folder_within_folders_that_are_not_there_can_be_held(tmp_path: Path) -> None:
    with locked(tmp_path / "runs" / "mine"):
        assert (tmp_path / "runs" / "mine").is_dir()
