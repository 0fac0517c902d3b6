"""Arrays in memory up to a size, and beyond it in a file without a name, which goes with whoever holds the array."""

import math
import os
import tempfile
from pathlib import Path

import numpy as np

from diptych.common.files import reserve


def float_array(shape: tuple[int, ...], at_most: int, folder: Path) -> np.ndarray:
    """Room for float32 numbers: in memory up to `at_most` bytes, else mapped from a file in `folder`."""
    if 4 * math.prod(shape) <= at_most:
        return np.empty(shape, np.float32)
    # The mapping outlives the file.
    with tempfile.TemporaryFile(dir=folder if os.access(folder, os.W_OK) else None) as file:
        reserve(file.fileno(), 4 * math.prod(shape))
        return np.memmap(file, np.float32, "r+", shape=shape)
