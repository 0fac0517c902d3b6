"""Ray as the engine: one local Ray of two workers for all tests of this file."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diptych.common.errors import DiptychError
from diptych.search.filling import embed_parts
from diptych.search.filling.embed import embed
from diptych.search.filling.embed_plan import read_plan
from diptych.search.filling.embed_ray import RETRIES, EmbedWorker, RayPool
from diptych.search.filling.parts_folder import PartsFolder
from tests.search import tiny
from tests.search.filling.test_embed import BROKEN, bad_of, rows_of

ray = pytest.importorskip("ray", reason="the extra ray is not installed")
PART = 40
POOL = RayPool(workers=2, gpus_per_worker=0)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_parts, "MEASURED", 0.0)  # workers of Ray measure as ever


class Killer(threading.Thread):
    """Kills the first process that is seen to write a part."""

    def __init__(self, out: Path) -> None:
        super().__init__(daemon=True)
        self.out = out
        self.killed = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set() and not self.killed:
            for path in self.out.glob(".part-*.part"):
                self.killed = int(path.name.split(".")[-2])
                os.kill(self.killed, signal.SIGKILL)
                break
            time.sleep(0.001)


def run(folder: Path, out: Path, model: str, **options: Any) -> Any:
    return embed([folder], out, model, part=PART, device="cpu", threads=1, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pictures = tiny.fill(tmp_path_factory.mktemp("many") / "pictures", 6 * PART - 1)
    (pictures / "bad.png").write_bytes(BROKEN)
    return pictures


def test_a_worker_that_is_killed_costs_nothing_and_missing_parts_are_gone_on_with(
    vse_folder: str, folder: Path, tmp_path: Path
) -> None:
    killer = Killer(tmp_path / "ray")
    killer.start()
    report = run(folder, tmp_path / "ray", vse_folder, pool=POOL)
    killer.over.set()
    assert killer.killed
    assert (report.entries, report.bad, report.parts, report.before) == (6 * PART - 1, 1, 6, 0)
    assert report.speed.model_rate > 0
    run(folder, tmp_path / "plain", vse_folder)
    one, other = rows_of(tmp_path / "ray"), rows_of(tmp_path / "plain")
    assert list(one) == list(other)
    for key, vector in other.items():
        np.testing.assert_allclose(one[key], vector, atol=1e-5)
    assert bad_of(tmp_path / "ray") == bad_of(tmp_path / "plain")
    assert not list((tmp_path / "ray").glob(".*"))

    before = (tmp_path / "ray" / "part-00003.parquet").read_bytes()
    (tmp_path / "ray" / "part-00003.parquet").unlink()
    again = run(folder, tmp_path / "ray", vse_folder, pool=POOL)
    assert (again.entries, again.before) == (PART, 5)
    assert (tmp_path / "ray" / "part-00003.parquet").read_bytes() == before
    assert run(folder, tmp_path / "ray", vse_folder, pool=POOL).speed is None


def test_what_is_wrong_is_one_sentence(vse_folder: str, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", PART + 1)
    model = tiny.save_vse(tmp_path / "model")
    run(folder, tmp_path / "out", model)
    (tmp_path / "out" / "part-00001.parquet").unlink()
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(DiptychError, match=r"model: expected a run with best/config\.json"):
        run(folder, tmp_path / "out", model, pool=POOL)
    with pytest.raises(DiptychError, match="1 workers of 1 GPUs each are wanted, and Ray has 0"):
        run(folder, tmp_path / "gpu", vse_folder, pool=RayPool(workers=1, gpus_per_worker=1))
    with pytest.raises(DiptychError, match="3 workers are wanted, and Ray has 2 cores"):
        run(folder, tmp_path / "cores", vse_folder, pool=RayPool(workers=3))


def test_a_part_that_ends_every_worker_is_given_up(vse_folder: str, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", PART + 1)
    run(folder, tmp_path / "out", vse_folder)
    out = PartsFolder(tmp_path / "out")
    plan = read_plan(out)
    assert plan is not None
    for left in range(RETRIES):  # as workers leave them that are killed
        (tmp_path / "out" / f".part-00001.parquet.host.{left}.part").write_bytes(b"")
    worker = EmbedWorker(plan, out.address, "cpu", None, 1)
    told = json.dumps(plan.parts[1].to_json())
    assert worker({"number": [1], "part": [told]})["error"] == [
        "part-00001.parquet: ended 3 workers that were at it, maybe for want of memory"
    ]
    out.sweep()
    assert worker({"number": [1], "part": [told]})["entries"] == [1]
