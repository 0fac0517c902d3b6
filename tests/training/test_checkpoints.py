"""A checkpoint is on the disk before the one before it goes, and one that is damaged is told."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from diptych.common.errors import DiptychError
from diptych.training import checkpoints, loop
from diptych.training.loop import Device, Outcome, train
from diptych.training.start import build_for
from tests.training import toy
from tests.training.test_loop import metrics
from tests.training.test_loop_loss import interrupt_after

RECIPE = toy.recipe(epochs=2)


def go(run: Path) -> Outcome:
    return train(RECIPE, run, Device("cpu"), toy.splits())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that stopped in its second epoch, with a `best` of its first."""
    interrupt_after(6, RECIPE, tmp_path / "run", monkeypatch)
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.pt", "position.json"])
@pytest.mark.parametrize("left", [None, 0.0, 0.5])
def test_a_damaged_checkpoint_is_told_by_name(name: str, left: float | None, run: Path) -> None:
    path = run / "last" / name
    if left is None:
        path.unlink()
    else:
        os.truncate(path, int(path.stat().st_size * left))
    before = metrics(run)
    with pytest.raises(DiptychError, match=rf"last/{name}: "):
        go(run)
    assert metrics(run) == before


def test_a_link_to_nothing_is_told_and_not_begun_anew(run: Path) -> None:
    before = metrics(run)
    shutil.rmtree((run / "last").resolve())
    with pytest.raises(
        DiptychError,
        match=r"last: points at a checkpoint that is gone, checkpoints/step-00000006; there is .*step-00000004",
    ):
        go(run)
    assert metrics(run) == before


def test_a_kill_between_the_first_checkpoint_and_its_link_loses_nothing(run: Path) -> None:
    (run / "last").unlink()
    assert go(run).finished
    assert [line["step"] for line in metrics(run) if "loss" in line] == list(range(1, 9))


def test_saving_a_step_again_never_takes_away_what_last_points_at(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, seen = os.replace, []

    def watched(old: Any, new: Any) -> None:
        replace(old, new)
        seen.append((run / "last" / "trainer.pt").is_file())

    outcome = go(run)
    card, position = "", outcome.position
    trained = trained_of(run)
    monkeypatch.setattr(os, "replace", watched)
    checkpoints.save_checkpoint(run, trained, position, card)
    assert all(seen)
    assert len(list((run / "checkpoints").iterdir())) <= 2
    assert go(run).position == position


def trained_of(run: Path) -> checkpoints.Trained:
    matcher = build_for(RECIPE, toy.splits())
    loss = loop.build_loss(RECIPE.loss)
    optimiser = loop.build_optimiser(RECIPE.training.optimiser, matcher, loss, {})
    trained = checkpoints.Trained(matcher, optimiser, loss)
    assert checkpoints.load_checkpoint(run, trained) is not None
    return trained


def test_everything_is_on_the_disk_before_an_old_checkpoint_goes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = trained_of(run)
    old = (run / "last").resolve()
    synced: list[str] = []
    fsync, rmtree = os.fsync, shutil.rmtree

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def removed(path: Any, *arguments: Any, **options: Any) -> None:
        if Path(path) == old:
            synced.append("old goes")
        rmtree(path, *arguments, **options)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(shutil, "rmtree", removed)
    checkpoints.save_checkpoint(run, trained, checkpoints.Position(1, 3, 7), "")
    before = synced[: synced.index("old goes")]
    aside = run / "checkpoints" / ".step-00000007.part"
    folder = run / "checkpoints" / "step-00000007"
    for path in folder.iterdir():
        assert str(aside / path.name) in before
    assert str(aside) in before
    assert before.index(str(aside)) < before.index(str(run / "checkpoints")) < before.index(str(run))
    assert not old.exists()
