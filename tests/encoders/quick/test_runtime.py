"""OpenVINO in a process that goes on: what it leaves behind when a graph is let go."""

import subprocess
import sys

import pytest

pytest.importorskip("openvino", reason="the extra fast is not installed")

LET_GO = """
import gc, os, signal, threading
import numpy as np
import openvino as ov
from openvino import opset13 as op
from diptych.encoders.quick.runtime import CompiledGraph

values = op.parameter([-1, 3], np.float32)
held = [CompiledGraph(ov.Model([op.relu(values)], [values]))]
assert held[0](np.array([[-1, 0, 2]], np.float32)).tolist() == [[0, 0, 2]]
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))
thread.start()
thread.join()
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
os.kill(os.getpid(), signal.SIGINT)
print(*seen)
"""


def test_a_signal_is_handled_after_another_thread_let_a_graph_go() -> None:
    done = subprocess.run([sys.executable, "-c", LET_GO], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "handled")
