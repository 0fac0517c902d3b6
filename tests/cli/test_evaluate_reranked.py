import json
from pathlib import Path

import pytest

from diptych.cli.main import run
from diptych.data.read import read_collection
from diptych.evaluation.rerank import evaluate_reranked
from diptych.matchers.base import Matcher
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


def test_figures_are_those_of_both_stages(
    models: tuple[str, str], data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = models
    arguments = ["evaluate-reranked", fast, "--rerank", slow, "--depth", "0.5", "--fusion", "replace", "--data", data]
    assert run([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    matchers = [Matcher.from_pretrained(model) for model in models]
    expected = evaluate_reranked(*matchers, read_collection(data).split("test"), 0.5, fusion="replace")
    recalls = {name: value for name, value in expected.figures.items() if not name.startswith("seconds/")}
    assert {name: told[name] for name in recalls} == pytest.approx(recalls)
    assert told["notes"] == [f"the top 50 % rescored by {slow}, replace"]
    assert not (Path(fast) / "evaluations").exists()


def test_a_table_of_several_runs_and_a_file(
    models: tuple[str, str], data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = models
    assert run(["evaluate-reranked", fast, slow, "--rerank", slow, "--data", data]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines if ", re-ranked  " in line] == ["fast", "slow"]
    arguments = ["evaluate-reranked", fast, "--rerank", slow, "--data", data, "--out", str(tmp_path / "kept")]
    assert run(arguments) == 0
    assert (tmp_path / "kept" / "all-pairs-test.json").is_file()
    assert run([*arguments[:1], slow, *arguments[1:]]) == 1
    assert "--out: several runs would overwrite each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ([], 2, "--rerank"),
        (["--rerank", "SLOW", "--depth", "2"], 1, "depth: expected a part above 0 and at most 1, got 2"),
        (["--rerank", "SLOW", "--fusion", "most"], 2, "'most' is not one of"),
        (["--rerank", "gone"], 1, "gone"),
        (["--rerank", "SLOW", "--device", "nonsense"], 1, "device: 'nonsense' cannot be used"),
        (["--rerank", "SLOW", "--format", "html"], 1, "format: 'html' does not exist"),
    ],
)
def test_mistakes_are_told(
    models: tuple[str, str],
    data: str,
    arguments: list[str],
    status: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [models[1] if argument == "SLOW" else argument for argument in arguments]
    assert run(["evaluate-reranked", models[0], "--data", data, *given]) == status
    assert told in capsys.readouterr().err
