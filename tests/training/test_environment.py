import json
import platform
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
import torch

import diptych
from diptych.training import environment
from diptych.training.loop import Device, train
from tests.training import toy
from tests.training.test_loop_loss import interrupt_after


def starts(run: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((run / "environment.json").read_text())["starts"]
    return found


def test_every_start_of_a_run_has_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = toy.recipe(epochs=2)
    interrupt_after(3, recipe, tmp_path / "run", monkeypatch)
    train(recipe, tmp_path / "run", Device("cpu"), toy.splits())
    train(recipe, tmp_path / "run", Device("cpu"), toy.splits())  # there is nothing left to do
    first, second = starts(tmp_path / "run")
    assert (first["from_step"], first["to_step"]) == (0, 3)
    assert (second["from_step"], second["to_step"]) == (3, 8)
    for entry in (first, second):
        assert datetime.fromisoformat(str(entry["started"])) <= datetime.fromisoformat(str(entry["ended"]))
        assert entry["versions"] == environment.versions()
        assert entry["hardware"] == {**environment.hardware(torch.device("cpu")), "processes": 1}
        assert entry["commit"] == environment.commit()


def test_a_run_under_way_already_has_its_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.Environment(tmp_path, 0, 1, torch.device("cpu"), None).write(0)
    assert starts(tmp_path)[0]["to_step"] == 0


def test_versions_and_hardware_are_told() -> None:
    versions = environment.versions()
    assert versions["python"] == platform.python_version()
    assert versions["diptych"] == diptych.__version__
    assert {"torch", "numpy", "safetensors"} <= versions.keys()
    hardware = environment.hardware(torch.device("cpu"))
    assert hardware["device"] == "cpu"
    assert hardware["processor"]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_that_of_the_source_and_of_nothing_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "diptych"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(diptych, "__file__", str(package / "__init__.py"))
    assert environment.commit() is None
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "something else")
    assert environment.commit() is None  # installed inside another project
    git(tmp_path, "add", "diptych")
    git(tmp_path, "commit", "-m", "the source")
    assert environment.commit() == git(tmp_path, "rev-parse", "HEAD")
    (package / "__init__.py").write_text("1")
    assert environment.commit() == git(tmp_path, "rev-parse", "HEAD") + "+changes"
