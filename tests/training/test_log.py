import json
from pathlib import Path

import pytest
import torch

from diptych.common.errors import DiptychError
from diptych.training.log import Measured, TrainingLog


def lines(run: Path) -> list[dict[str, object]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured(loss: float, gradient: float = 3.0, **terms: float) -> Measured:
    parts = {name: torch.tensor(value) for name, value in terms.items()}
    return Measured(torch.tensor(loss), torch.tensor(gradient), parts)


def test_losses_are_read_a_few_at_a_time_and_whenever_asked(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, True, (), total=0, every=3)
    log.step(1, measured(0.5), 0.1, 0)
    log.step(2, measured(0.25), 0.1, 0)
    assert lines(tmp_path) == []
    log.step(3, measured(2.0), 0.2, 1)
    assert lines(tmp_path) == [
        {"step": 1, "loss": 0.5, "lr": 0.1, "epoch": 0, "gradient": 3.0},
        {"step": 2, "loss": 0.25, "lr": 0.1, "epoch": 0, "gradient": 3.0},
        {"step": 3, "loss": 2.0, "lr": 0.2, "epoch": 1, "gradient": 3.0},
    ]
    log.step(4, measured(1.0), 0.2, 1)
    log.read()
    assert log.loss == 1.0
    log.evaluation(4, 1, {"rsum": 3.0})
    assert lines(tmp_path)[3:] == [
        {"step": 4, "loss": 1.0, "lr": 0.2, "epoch": 1, "gradient": 3.0},
        {"step": 4, "epoch": 1, "validation": {"rsum": 3.0}},
    ]


def test_a_loss_that_is_not_finite_is_named_by_its_own_step(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, True, (), total=0, every=10)
    for step, loss in enumerate([1.0, float("inf"), float("nan")], 1):
        log.step(step, measured(loss), 0.1, 0)
    with pytest.raises(DiptychError, match="the loss is inf at step 2; there is no checkpoint yet"):
        log.read()
    assert [line["step"] for line in lines(tmp_path)] == [1]


def test_a_silent_process_checks_but_writes_nothing(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, False, (), total=0, every=1)
    log.step(1, measured(1.0), 0.1, 0)
    assert lines(tmp_path) == []
    with pytest.raises(DiptychError, match="nan"):
        log.step(2, measured(float("nan")), 0.1, 0)


def test_what_a_run_wrote_behind_its_checkpoint_is_dropped(tmp_path: Path) -> None:
    first = TrainingLog(tmp_path, True, (), total=0, every=1)
    for step in (1, 2, 3):
        first.step(step, measured(1.0), 0.1, 0)
    TrainingLog(tmp_path, True, (), total=2, every=1)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]


def test_terms_and_gradients_stand_beside_their_own_loss(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, True, (), total=0, every=10)
    log.step(1, measured(1.5, 4.0, hinge=1.25, mmd=0.25), 0.1, 0)
    log.step(2, measured(2.0, 5.0), 0.1, 0)
    log.step(3, measured(2.5, 6.0, mmd=0.5), 0.1, 0)
    log.read()
    assert lines(tmp_path) == [
        {"step": 1, "loss": 1.5, "lr": 0.1, "epoch": 0, "gradient": 4.0, "terms": {"hinge": 1.25, "mmd": 0.25}},
        {"step": 2, "loss": 2.0, "lr": 0.1, "epoch": 0, "gradient": 5.0},
        {"step": 3, "loss": 2.5, "lr": 0.1, "epoch": 0, "gradient": 6.0, "terms": {"mmd": 0.5}},
    ]


def test_a_gradient_that_overflowed_is_none_and_the_line_stays_json(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path, True, (), total=0, every=1)
    log.step(1, measured(1.0, float("inf")), 0.1, 0)
    log.step(2, measured(1.0, float("nan")), 0.1, 0)
    assert [line["gradient"] for line in lines(tmp_path)] == [None, None]
    assert "Infinity" not in (tmp_path / "metrics.jsonl").read_text()
