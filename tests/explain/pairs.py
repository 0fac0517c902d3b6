"""Explanations made by hand, so that what is drawn is known."""

from typing import Any

import numpy as np

from diptych.data.feature_file import cell_boxes
from diptych.explain.explanation import Explanation, ShownArray

BOXES = np.array([[0, 0, 20, 20], [30, 10, 50, 30], [0, 0, 60, 40]], dtype=np.float32)


def axes_of(name: str) -> tuple[str, ...]:
    """What an array of that name runs over: its name tells."""
    if name == "together":
        return ("words", "regions")
    first, _, second = name.partition("_to_")
    if second:
        return (*(("iterations",) if first == "slot" else ()), f"{first}s", f"{second}s")
    return (f"{name.partition('_')[0]}s",)


def pair(
    sentence: str = "red dog", score: float = 0.0, regions: int = 1, kind: str = "vse", given: Any = None, **arrays: Any
) -> Explanation:
    """An explanation with these arrays; `given` holds its other fields."""
    shown = {name: ShownArray(array, axes_of(name)) for name, array in arrays.items() if array is not None}
    return Explanation(
        kind, kind.upper(), sentence, tuple(sentence.split()), score, regions, shown=shown, **(given or {})
    )


def boxes(**arrays: Any) -> Explanation:
    """Three regions, the last of them the whole picture, and two words; each word looks at one region."""
    looks = {"word_to_region": np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32), **arrays}
    return pair("red <dog>", 0.5, 3, "camp", {"boxes": BOXES, "size": (60, 40)}, **looks)


def cells(**arrays: Any) -> Explanation:
    """Two by three cells, and DivE's arrays."""
    slots = np.zeros((2, 3, 6), dtype=np.float32)
    slots[:, 0, 0] = slots[:, 1, 5] = slots[:, 2, 3] = 1
    shown = {
        "slot_to_region": slots,
        "slot_to_word": np.full((2, 3, 2), 0.5, dtype=np.float32),
        "together": np.array([[0, 1, 0, 0, 0, -1], [1, 0, 0, 0, 0, 0]], dtype=np.float32),
        "word_drop": np.array([0.2, -0.1], dtype=np.float32),
        **arrays,
    }
    place: dict[str, Any] = {"boxes": cell_boxes((2, 3), (60, 40)), "size": (60, 40), "grid": (2, 3)}
    nearest = ((("a dog & cat", 0.9),), (("two", 0.5),), (("three", 0.1),))
    return pair("red dog", 0.25, 6, "dive", {**place, "nearest": nearest}, **shown)
