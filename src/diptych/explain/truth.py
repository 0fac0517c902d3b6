"""Checked where truth is known: on drawn scenes, does a word look at what it names?"""

from collections.abc import Sequence

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.collection import Regions
from diptych.data.scenes import Caption, Captioned, SceneFeatures, boxes, draw
from diptych.data.scenes.draw import PICTURE_SIZE
from diptych.data.scenes.features import RegionKind
from diptych.explain.explain import explain
from diptych.explain.explanation import Explanation
from diptych.matchers.base import Matcher

WHOLE = 0.9  # a region that covers more of the picture than this shows no thing in particular


def attention_on_truth(
    matcher: Matcher,
    scenes: Sequence[Captioned],
    *,
    regions: RegionKind = "boxes",
    picture_size: int = PICTURE_SIZE,
    sentences: int = 1,
    left_out: bool = True,
) -> dict[str, float]:
    """How often the top region is the named thing, beside chance; of each scene, its first `sentences` sentences.

    words/chance: the mean part of the regions that show what a naming word names
    words/word_to_region, words/region_to_word, words/together: the part of naming words whose top region shows it
    regions/chance, regions/region_drop, regions/region_share, regions/slot_to_region: the same of whole sentences,
    whose top region is to show any thing that the sentence names
    words, sentences: how many were counted. Arrays that the matcher does not have are left out.
    """
    hits: dict[str, list[float]] = {}
    features = SceneFeatures([scene.scene for scene in scenes], regions, picture_size)
    pictures = not matcher.takes_features
    for row, scene in enumerate(scenes):
        members = boxes(scene.scene, picture_size)
        image = draw(scene.scene, picture_size) if pictures else features[row]
        for caption in scene.captions[:sentences]:
            explanation = explain(matcher, image, caption.text, left_out=left_out)
            if isinstance(image, Regions) and regions == "boxes":
                shown = np.array([[thing == i for i in range(len(members))] for thing in features.things(row)])
            else:
                shown = _shown(explanation, members)
            for name, hit in _hits(explanation, caption, shown):
                hits.setdefault(name, []).append(hit)
    counts = {
        "words": float(len(hits.get("words/chance", []))),
        "sentences": float(len(hits.get("regions/chance", []))),
    }
    return counts | {name: float(np.mean(values)) for name, values in hits.items()}


def naming_words(words: Sequence[str], caption: Caption) -> list[tuple[int, tuple[int, ...]]]:
    """The words that name something: position among the tokenizer's words, and the things named.

    Punctuation is skipped; a sentence may have been cut by the tokenizer, but not split in another way.
    """
    spoken = [place for place, word in enumerate(words) if any(c.isalnum() for c in word)]
    named = []
    for place, expected, things in zip(spoken, caption.words, caption.names, strict=False):
        if words[place].lower() != expected:
            raise DiptychError(f"{caption.text!r}: the tokenizer has {words[place]!r} where the truth has {expected!r}")
        if things:
            named.append((place, things))
    return named


def _hits(explanation: Explanation, caption: Caption, shown: np.ndarray) -> list[tuple[str, float]]:
    """Names of figures with one value for each word or sentence; shown: (regions, things)."""
    hits: list[tuple[str, float]] = []
    all_named: set[int] = set()
    arrays = {name: explanation.array(name) for name in ("word_to_region", "together")}
    drawn = explanation.array("region_to_word")
    if drawn is not None:
        arrays["region_to_word"] = drawn.T
    for place, things in naming_words(explanation.words, caption):
        all_named.update(things)
        right = _any(shown, list(things))
        if not right.any():
            continue  # too small for any cell
        hits.append(("words/chance", float(right.mean())))
        hits += [(f"words/{name}", _top(array[place], right)) for name, array in arrays.items() if array is not None]
    right = _any(shown, sorted(all_named))
    if right.any():
        hits.append(("regions/chance", float(right.mean())))
        slots = explanation.array("slot_to_region")
        wholes = {name: explanation.array(name) for name in ("region_drop", "region_share")}
        wholes["slot_to_region"] = None if slots is None else slots[-1].mean(0)
        hits += [(f"regions/{name}", _top(array, right)) for name, array in wholes.items() if array is not None]
    return hits


def _any(shown: np.ndarray, things: list[int]) -> np.ndarray:
    """Which regions show any of the things: (regions,)."""
    right: np.ndarray = shown[:, things].max(1, initial=False)
    return right


def _top(values: np.ndarray, right: np.ndarray) -> float:
    """Whether the largest value is on a right region; of equal ones, the part that is: a flat map earns no more."""
    best = values >= values.max()
    return float(right[best].mean())


def _shown(explanation: Explanation, members: Sequence[np.ndarray]) -> np.ndarray:
    """Which regions show which things: (regions, things). A cell shows a thing where the middle of the one is in the
    other."""
    assert explanation.boxes is not None
    assert explanation.size is not None
    x0, y0, x1, y1 = explanation.boxes.T
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    whole = (x1 - x0) * (y1 - y0) > WHOLE * explanation.size[0] * explanation.size[1]
    shown = np.zeros((len(explanation.boxes), len(members)), dtype=bool)
    for thing, group in enumerate(members):
        for left, top, right, bottom in group.tolist():
            middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
            inside = (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
            around = (x0 <= middle_x) & (middle_x <= x1) & (y0 <= middle_y) & (middle_y <= y1)
            shown[:, thing] |= inside | around
    return shown & ~whole[:, None]
