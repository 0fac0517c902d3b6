import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diptych.training.signals import StopRequest
from tests.training.test_loop import ENVIRONMENT, ROOT


def test_sigterm_any_number_of_times_asks_for_an_end() -> None:
    stop = StopRequest()
    with stop.listening():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
    assert stop.asked


def test_a_second_interrupt_ends_at_once() -> None:
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_afterwards_signals_do_what_they_did() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopRequest().listening():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def workers_of(process: int) -> list[int]:
    """The children of a process: the data loader's workers."""
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_ends_the_run_with_a_checkpoint(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.run_workers", str(tmp_path / "run")]
    trainer = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert trainer.stdout is not None
    assert trainer.stderr is not None
    try:
        ready, _, _ = select.select([trainer.stdout], [], [], 120)
        assert ready, "no step in two minutes"
        assert trainer.stdout.readline() == b"2\n"
        workers = workers_of(trainer.pid)
        assert len(workers) >= 2
        if number == signal.SIGTERM:
            os.kill(trainer.pid, number)  # timeout(1) signals its command, and then the group that it is in
        os.killpg(trainer.pid, number)
        out, err = trainer.communicate(timeout=120)
    finally:
        if trainer.poll() is None:
            os.killpg(trainer.pid, signal.SIGKILL)
            trainer.wait()
    assert trainer.returncode == 0, err.decode()
    *steps, last = out.decode().split()
    assert last == "stopped"
    assert (tmp_path / "run" / "last" / "position.json").is_file()
    total = int(steps[-1]) if steps else 2
    assert (tmp_path / "run" / "last").resolve().name == f"step-{total:08d}"
    until = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, workers))
