"""Small pictures with structure, so that places in them differ."""

import numpy as np
from PIL import Image


def picture(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    """Soft random colours: a few pixels stretched over the whole."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)
