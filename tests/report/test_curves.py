import re
from pathlib import Path

import numpy as np
import pytest

from diptych.report.curves import binned, curves_section
from diptych.report.run_folder import read_run
from tests.report import runs


@pytest.mark.parametrize("count", [1, 2, 199, 200, 201, 1013])
def test_stretches_hold_every_step_once(count: int) -> None:
    steps = list(range(1, count + 1))
    values = np.random.default_rng(count).normal(size=count).tolist()
    rows = binned(steps, values, 200)
    assert len(rows) == min(count, 200)
    start = 0
    for last, mean, low, high in rows:
        part = values[start:last]
        assert mean == pytest.approx(sum(part) / len(part))
        assert (low, high) == (min(part), max(part))
        start = last
    assert start == count


def test_curves_show_what_the_log_says(tmp_path: Path) -> None:
    section = curves_section(read_run(runs.scenes_run(tmp_path / "run", "vse++"))).body
    for name in ("loss", "rate", "rsum", "recalls"):
        assert f'<figure class="chart" id="{name}">' in section
    assert "best: epoch 3" in section
    tables = dict(re.findall(r'<figure class="chart" id="(\w+)">.*?<tbody>(.*?)</tbody>', section, re.S))
    assert re.findall(r">([\d.]+)<", tables["rsum"]) == ["1", "85", "2", "95", "3", "105"]
    assert re.findall(r">([\d.]+)<", tables["rate"]) == ["1", "0.01", "20", "0.01", "21", "0.001", "30", "0.001"]


def test_a_run_without_a_log_says_so(tmp_path: Path) -> None:
    run = runs.write_run(tmp_path / "run", runs.recipe(runs.KINDS["vse++"]), ["a dog"], log=False)
    body = curves_section(read_run(run)).body
    assert "no curves to draw" in body
    assert "<svg" not in body
