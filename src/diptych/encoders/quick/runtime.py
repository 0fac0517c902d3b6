"""OpenVINO on the CPU: graphs compiled, and run by any number of threads, each on one core."""

import os
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from diptych.common.read_ahead import MOST_WORKERS


def has_runtime() -> bool:
    """Whether OpenVINO is installed."""
    return find_spec("openvino") is not None


@cache
def _core() -> Any:
    """OpenVINO itself, once and for the life of the process.

    Its CPU plugin gives the thread that loads it a stack for signals, and takes that memory away with itself, from
    whichever thread ends it: the next signal would then end the process.
    """
    import openvino as ov

    return ov.Core()


class CompiledGraph:
    """A graph of one input and one output. Threads may share it: each runs it on one core."""

    def __init__(self, graph: Any) -> None:
        streams = min(os.cpu_count() or 1, MOST_WORKERS)
        settings = {
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": streams,
            "ENABLE_CPU_PINNING": False,
            "INFERENCE_PRECISION_HINT": "f32",  # else a CPU that has bfloat16 takes it
        }
        self._compiled = _core().compile_model(graph, "CPU", settings)
        self._own = threading.local()

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """What comes out, in memory of its own."""
        request = getattr(self._own, "request", None)
        if request is None:
            request = self._own.request = self._compiled.create_infer_request()
        return np.array(request.infer([values], share_inputs=True)[0])
