from pathlib import Path

import pytest

from tests.processes import TELL_THREADS, in_group

LAUNCH = """
import torch
import torch.distributed as dist
from diptych.training.loop import Device, launch
from tests.training.toy import recipe
atexit.register(tell)
fabric = launch(recipe(), Device("cpu"))
import torch._dynamo  # as models' libraries do
dist.all_reduce(torch.ones(2))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are named in Linux's /proc")
def test_no_thread_of_several_processes_outlives_their_training() -> None:
    processes = in_group(2, ["-c", TELL_THREADS + LAUNCH])
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert [stdout.splitlines()[-1] for stdout, _ in outputs] == ["[]", "[]"]
