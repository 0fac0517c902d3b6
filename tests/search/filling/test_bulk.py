import json
import os
import signal
import subprocess
import time
from pathlib import Path

from diptych.search.index import Index
from diptych.search.stores.address import open_store
from tests.processes import in_group
from tests.search import tiny


def start(world: int, arguments: list[str]) -> "list[subprocess.Popen[str]]":
    return in_group(world, ["-m", "tests.search.filling.bulk_run", *arguments, "--json"])


def test_processes_fill_one_store_each_picture_once_also_after_a_kill(vse_folder: str, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", 80)
    (folder / "bad.png").write_bytes(b"x")
    address = tmp_path / "i.db"
    Index.create(address, vse_folder, device="cpu").close()
    arguments = [str(folder), "--index", str(address), "--model", vse_folder, "--device", "cpu"]
    processes = start(2, arguments)
    looking = open_store(address)
    while looking.count() == 0 and all(process.poll() is None for process in processes):
        time.sleep(0.001)
    for process in processes:  # as torchrun does when one of them dies
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    before = looking.count()
    looking.close()
    assert before > 0

    processes = start(2, arguments)
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    outcome = json.loads(outputs[0][0])
    assert outputs[1][0] == ""
    assert (outcome["added"], outcome["entries"], len(outcome["problems"])) == (80 - before, 80, 1)

    alone = Index.create(tmp_path / "alone.db", vse_folder, device="cpu")
    alone.sync(folder)
    with Index.open(address, device="cpu") as together:
        assert list(together.store.stamps()) == list(alone.store.stamps())
        found, expected = (i.search("two dog", top=80).results for i in (together, alone))
        assert [r.path for r in found] == [r.path for r in expected]
