"""Explanations made by hand, so that what is drawn is known."""

import numpy as np

from diptych.data.feature_file import cell_boxes
from diptych.explain.explanation import Explanation

BOXES = np.array([[0, 0, 20, 20], [30, 10, 50, 30], [0, 0, 60, 40]], dtype=np.float32)


def boxes(**arrays: object) -> Explanation:
    """Three regions, the last of them the whole picture, and two words; each word looks at one region."""
    given = {"word_to_region": np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32), **arrays}
    return Explanation("camp", "red <dog>", ("red", "<dog>"), 0.5, 3, BOXES, (60, 40), **given)  # type: ignore[arg-type]


def cells(**arrays: object) -> Explanation:
    """Two by three cells, and DivE's arrays."""
    slots = np.zeros((2, 3, 6), dtype=np.float32)
    slots[:, 0, 0] = slots[:, 1, 5] = slots[:, 2, 3] = 1
    given = {
        "slot_to_region": slots,
        "slot_to_word": np.full((2, 3, 2), 0.5, dtype=np.float32),
        "together": np.array([[0, 1, 0, 0, 0, -1], [1, 0, 0, 0, 0, 0]], dtype=np.float32),
        "word_drop": np.array([0.2, -0.1], dtype=np.float32),
        "nearest": ((("a dog & cat", 0.9),), (("two", 0.5),), (("three", 0.1),)),
        **arrays,
    }
    place = cell_boxes((2, 3), (60, 40))
    return Explanation("dive", "red dog", ("red", "dog"), 0.25, 6, place, (60, 40), (2, 3), **given)  # type: ignore[arg-type]
