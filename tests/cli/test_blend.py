"""`diptych blend`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from diptych.cli.main import run
from diptych.matchers.base import Matcher
from tests.training.test_blend import saved


def test_a_folder_that_loads_with_the_mean_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = saved(tmp_path / "one", 0), saved(tmp_path / "two", 1)
    out = tmp_path / "mean"
    assert run(["blend", one, two, "--share", "3", "--share", "1", "--out", str(out), "--half"]) == 0
    assert "the mean of 2 models" in capsys.readouterr().out
    name = "image_encoder.fc.weight"
    expected = 0.75 * load_file(f"{one}/model.safetensors")[name] + 0.25 * load_file(f"{two}/model.safetensors")[name]
    stored = load_file(out / "model.safetensors")[name]
    assert stored.dtype == torch.float16
    torch.testing.assert_close(stored.float(), expected, atol=1e-3, rtol=1e-3)
    Matcher.from_pretrained(out)
    assert f"- 0.75 of {one}" in (out / "README.md").read_text()


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "one", 0)
    assert run(["blend", one, "--out", one]) == 1
    assert "already there" in capsys.readouterr().err


def test_shares_and_models_must_be_as_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "one", 0)
    assert run(["blend", one, "--share", "1", "--share", "2", "--out", str(tmp_path / "mean")]) == 1
    assert "expected one for each of 1 models, got 2" in capsys.readouterr().err
    assert not (tmp_path / "mean").exists()
