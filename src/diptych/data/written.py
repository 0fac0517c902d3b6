"""What is written in a picture, read by RapidOCR, whose models lie in its package."""

import threading
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.photo import clean

# A line that the reader is less sure of is left out.
LEAST_SURE = 0.6
# Most characters that are kept of a picture.
LONGEST = 2000
# Larger pictures are read at this size: lines that people read in them are still tall enough.
LARGEST = 1920


@cache
def text_reader() -> Callable[[Image.Image], str]:
    """A function that reads what is written in an RGB picture, line by line; an error where there is none installed.

    Threads may share it; it reads one picture at a time, on all cores.
    """
    try:
        from rapidocr import RapidOCR
    except ImportError:
        raise DiptychError("reading text in pictures needs RapidOCR; install diptych[ocr]") from None
    try:
        engine = RapidOCR(params={"Global.log_level": "critical"})
    except ImportError as error:  # its engine is a package of its own
        raise DiptychError(f"reading text in pictures needs {error.name}; install diptych[ocr]") from None
    alone = threading.Lock()

    def read(image: Image.Image) -> str:
        if max(image.size) > LARGEST:
            image = image.copy()
            image.thumbnail((LARGEST, LARGEST), Image.Resampling.BICUBIC)
        with alone:
            found = engine(np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1]))
        lines = zip(found.txts or (), found.scores or (), strict=True)
        return " ".join(clean(text) for text, sure in lines if sure >= LEAST_SURE)[:LONGEST].strip()

    return read
