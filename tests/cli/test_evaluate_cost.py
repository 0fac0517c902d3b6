import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from tests.evaluation import tiny


@pytest.fixture
def models(tmp_path: Path) -> tuple[str, str]:
    """A fast model and a slow one."""
    tiny.matcher().save_pretrained(tmp_path / "fast")
    tiny.matcher("camp", seed=3).save_pretrained(tmp_path / "slow")
    return str(tmp_path / "fast"), str(tmp_path / "slow")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tiny.precomp(tmp_path / "tiny_precomp"))


def test_runs_and_two_stages(models: tuple[str, str], data: str, capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = models
    arguments = ["evaluate-cost", fast, slow, "--rerank", slow, "--depth", "0.5", "--data", data, "--queries", "2"]
    assert run([*arguments, "--beside", "camp/supplement-table-1"]) == 0
    out = capsys.readouterr().out
    names = [line.split("  ")[0] for line in out.splitlines()]
    assert names[3:9] == [
        "paper: Base Model (O(N^2 D))", "paper: CAMP (O(N^2 M D^2))", "paper: Rerank (top-10%) (time complexity: -)",
        "fast", "fast, then slow", "slow",
    ]  # fmt: skip
    assert "87.24" in out
    assert run([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["fast", "fast, then slow", "slow"]
    assert told["slow"]["cost/operations"] > told["fast"]["cost/operations"] > 0
    assert set(told["fast, then slow"]) == {"cost/query", "cost/overall"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--depth", "2", "--rerank", "FAST"], "depth: expected a part above 0 and at most 1, got 2"),
        (["--beside", "camp/table-3"], "camp/table-3: has no times of a query; expected camp/supplement-table-1"),
    ],
)
def test_what_is_refused(
    more: list[str], message: str, models: tuple[str, str], data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [models[0] if word == "FAST" else word for word in more]
    assert run(["evaluate-cost", models[0], "--data", data, *more]) == 1
    assert message in capsys.readouterr().err
