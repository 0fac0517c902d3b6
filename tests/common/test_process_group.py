from pathlib import Path

import pytest

from tests.processes import TELL_THREADS, in_group

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are named in Linux's /proc")

GROUP = """
import torch
import torch.distributed as dist
from diptych.common.process_group import before_group, end_group
end_group()
before_group()
dist.init_process_group("gloo")
import torch._dynamo  # as models' libraries do
dist.all_reduce(torch.ones(2))
end_group()
tell()
"""


def test_no_thread_outlives_a_group() -> None:
    [process] = in_group(1, ["-c", TELL_THREADS + GROUP])
    assert (process.communicate(timeout=120)[0], process.returncode) == ("[]\n", 0)
