"""The benchmark of training steps runs in small: rows of both kinds, with what can be tried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent.parent / "benchmarks" / "training_steps.py"


def rows(*options: str) -> list[dict[str, object]]:
    command = [sys.executable, str(PROGRAM), "--toy", "--precision", "float32", "--steps", "1", "--warm-up", "1"]
    told = subprocess.run([*command, *options], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    found: list[dict[str, object]] = json.loads(told.stdout)["rows"]
    return found


def test_a_matchers_step_is_timed_and_is_that_of_all_pairs() -> None:
    loop, plain, parts = rows("--only", "camp")
    assert [row["contender"] for row in (loop, plain, parts)] == ["as it is", "all pairs", "all pairs, 16 rows"]
    assert loop["pairs that count alone"]
    beside = loop["beside plain"]["float32"]  # type: ignore[index]
    assert beside["gradient off"] < 1e-4
    assert loop["ms"] > 0  # type: ignore[operator]


def test_the_shipped_model_is_tuned_end_to_end_with_what_is_tried() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    found = rows("--only", "end", "--try", "folded", "contiguous+text-groups-2")
    told = ["eager", "compiled", "folded", "contiguous+text-groups-2"]
    assert [row["contender"] for row in found] == [*told, "compiled, held pictures", "compiled, JPEG files"]
    assert all(row["ms"] > 0 for row in found)  # type: ignore[operator]
