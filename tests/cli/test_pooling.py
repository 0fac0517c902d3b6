import json

import pytest

from diptych.cli.main import run
from diptych.cli.pooling import as_text, mean_errors
from diptych.training.pooling_experiment import DESIGNS, PAPER, PATTERNS, Errors


def test_it_prints_our_figures_and_the_papers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pooling", "--steps", "1", "--seeds", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["budget"]["steps"] == 1
    assert [(row["design"], row["pattern"]) for row in answer["rows"]] == [(d, p) for d in DESIGNS for p in PATTERNS]
    row = answer["rows"][-1]
    assert row["paper"] == {"seen": 0, "smaller": 0.005, "larger": 0.001}
    assert len(row["runs"]) == 2
    assert row["ours"]["seen"] == pytest.approx(sum(r["seen"] for r in row["runs"]) / 2)


def test_the_table_shows_every_column_and_how_far_we_are() -> None:
    table = {design: {p: [error] for p, error in row.items()} for design, row in PAPER.items()}
    table["Cos/Sin+BiGRU"]["L"] = [Errors(0.002, 0.012, 0.001)]
    lines = as_text(table).splitlines()
    widths = [line.split() for line in lines]
    assert widths[2] == [*PATTERNS, *PATTERNS]
    assert widths[-3] == ["Cos/Sin+BiGRU", "paper", ".000", ".005", ".010", ".006", ".000",
                          ".002/.000", ".010/.004", ".031/.007", ".046/.004", ".005/.001"]  # fmt: skip
    assert widths[-2][5:] == [".002", ".002/.000", ".010/.004", ".031/.007", ".046/.004", ".012/.001"]
    assert lines[-1].endswith(": .007")


def test_seeds_are_averaged() -> None:
    mean = mean_errors([Errors(0.0, 0.2, 0.4), Errors(0.2, 0.2, 0.0)])
    assert (mean.seen, mean.smaller, mean.larger) == pytest.approx((0.1, 0.2, 0.2))


def test_no_seeds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pooling", "--seeds", "0"]) != 0
    assert "seeds" in capsys.readouterr().err
