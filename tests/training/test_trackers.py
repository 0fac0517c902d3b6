import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from diptych.common.errors import DiptychError
from diptych.training import loop
from diptych.training.log import TrainingLog
from diptych.training.loop import Device, train
from diptych.training.trackers import Tracker, run_id
from tests.training import toy
from tests.training.test_log import measured
from tests.training.test_loop import metrics


class Notes:
    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, float], int]] = []
        self.closed = False

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.taken.append((numbers, step))

    def close(self) -> None:
        self.closed = True


def test_a_tracker_is_told_what_the_file_is(tmp_path: Path) -> None:
    notes = Notes()
    tracker: Tracker = notes
    log = TrainingLog(tmp_path, True, [tracker], total=0, every=2)
    log.step(1, measured(1.5, 4.0, hinge=1.25, mmd=0.25), 0.1, 0)
    log.step(2, measured(1.0, float("inf")), 0.1, 0)
    log.evaluation(2, 0, {"rsum": 300.0})
    log.close()
    assert notes.taken == [
        ({"loss": 1.5, "lr": 0.1, "epoch": 0, "gradient": 4.0, "terms/hinge": 1.25, "terms/mmd": 0.25}, 1),
        ({"loss": 1.0, "lr": 0.1, "epoch": 0}, 2),
        ({"epoch": 0, "rsum": 300.0}, 2),
    ]
    assert notes.closed


def test_weights_and_biases_is_told_a_run_and_its_continuation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases, diptych[wandb], is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    from lightning.pytorch.loggers import WandbLogger

    told: list[tuple[int | None, dict[str, float]]] = []
    log_metrics = WandbLogger.log_metrics

    def noted(self: Any, numbers: dict[str, float], step: int | None = None) -> None:
        told.append((step, dict(numbers)))
        log_metrics(self, numbers, step)

    monkeypatch.setattr(WandbLogger, "log_metrics", noted)
    for epochs in (1, 2, 2):
        train(toy.recipe(epochs=epochs, wandb="toys"), tmp_path / "run", Device("cpu"), toy.splits())
    kept = list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(kept) == 2  # the third start had nothing to do, and told nothing
    assert {path.name for path in kept} == {f"run-{run_id(toy.recipe(), tmp_path / 'run')}.wandb"}
    assert [(step, numbers["loss"]) for step, numbers in told if "loss" in numbers] == [
        (entry["step"], entry["loss"]) for entry in metrics(tmp_path / "run") if "loss" in entry
    ]
    assert [step for step, numbers in told if "rsum" in numbers] == [4, 8]


def test_without_the_package_it_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch.loggers", None)
    with pytest.raises(DiptychError, match=r"training\.wandb needs Weights & Biases .*install diptych\[wandb\]"):
        train(toy.recipe(wandb="toys"), tmp_path / "run", Device("cpu"), toy.splits())
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_the_lines_of_a_run_say_how_long_it_takes_and_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rsums = iter([100.0, 90.0, 80.0])
    validate = loop.validate
    monkeypatch.setattr(loop, "validate", lambda *given: {**validate(*given), "rsum": next(rsums)})
    outcome = train(toy.recipe(epochs=9, patience=2), tmp_path / "run", Device("cpu"), toy.splits())
    lines = capsys.readouterr().err.splitlines()
    waiting = re.compile(r"; \d+% of the time waiting for data$")
    assert all(waiting.search(line) for line in lines)
    first, second, third = (waiting.sub("", line) for line in lines)
    assert first.startswith("epoch 1/9: validation rsum 100.0 (best); at most ")
    assert first.endswith(" s left")
    assert second.startswith(
        "epoch 2/9: validation rsum 90.0; the best is still 100.0 of epoch 1, 1 of 2 epochs of patience gone; at most "
    )
    assert third == (
        "epoch 3/9: validation rsum 80.0; the best is still 100.0 of epoch 1, 2 of 2 epochs of patience gone;"
        " stopping early: training.patience is used up"
    )
    assert (outcome.ended, outcome.finished, outcome.position.epoch) == ("patience", True, 3)
    again = train(toy.recipe(epochs=9, patience=2), tmp_path / "run", Device("cpu"), toy.splits())
    assert again.ended == "patience"


def test_a_judge_ends_a_run(tmp_path: Path) -> None:
    asked: list[tuple[int, float]] = []

    def judge(epoch: int, figures: dict[str, float]) -> bool:
        asked.append((epoch, figures["rsum"]))
        return epoch < 2

    outcome = train(toy.recipe(epochs=5), tmp_path / "run", Device("cpu"), toy.splits(), judge=judge)
    assert (outcome.ended, outcome.finished, outcome.position.epoch) == ("judge", True, 2)
    told = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert asked == [(e["epoch"] + 1, e["validation"]["rsum"]) for e in told if "validation" in e]
    assert train(toy.recipe(epochs=5), tmp_path / "run", Device("cpu"), toy.splits()).ended == "epochs"
