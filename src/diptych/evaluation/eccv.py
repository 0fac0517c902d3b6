"""ECCV Caption and CrissCrossed Captions: COCO's test split with the right pairs that its captions left out.

The annotations come with the `eccv_caption` package; the figures are counted here and equal the package's own.
"""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from diptych.common.errors import DiptychError
from diptych.evaluation.figures import Figures, Ranges, ranges_between
from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import Ranks

Annotated = dict[int, list[int]]


def _folder() -> Path:
    # The package is found without importing it: its import warns, and nothing of its code is needed.
    spec = find_spec("eccv_caption")
    if spec is None or not spec.submodule_search_locations:
        raise DiptychError("the protocols eccv and cxc need the annotations of eccv_caption: install diptych[eccv]")
    return Path(spec.submodule_search_locations[0]) / "data"


@lru_cache
def annotations(protocol: str) -> tuple[Annotated, Annotated]:
    """The right captions of each picture and the right pictures of each caption, by COCO's ids; `eccv` or `cxc`."""
    both = []
    for name in ("image_to_caption", "caption_to_image"):
        tree = json.loads((_folder() / f"{protocol}_{name}.json").read_text(encoding="utf-8"))
        both.append({int(query): sorted({int(answer) for answer in answers}) for query, answers in tree.items()})
    return both[0], both[1]


@lru_cache
def split_captions() -> dict[int, tuple[int, ...]]:
    """COCO's ids of the 5,000 test pictures, and of the captions of each."""
    tree = json.loads((_folder() / "original_image_to_caption.json").read_text(encoding="utf-8"))
    return {int(picture): tuple(map(int, captions)) for picture, captions in tree.items()}


@lru_cache
def split_ids() -> tuple[frozenset[int], frozenset[int]]:
    """COCO's ids of the 5,000 test pictures and of their 25,000 captions."""
    captions = np.load(_folder() / "coco_test_ids.npy", allow_pickle=False)
    return frozenset(split_captions()), frozenset(captions.tolist())


def coco_number(text: str) -> int | None:
    """COCO's number in an id or a file name: 391895 of `391895` and of `COCO_val2014_000000391895.jpg`."""
    match = re.fullmatch(r"(?:COCO_\w+?_)?0*(\d+)(?:\.\w+)?", Path(text).name)
    return int(match[1]) if match else None


def gallery(
    protocol: str, image_ids: Sequence[str], sentence_ids: Sequence[str]
) -> tuple[dict[int, int], dict[int, int]]:
    """Positions of the test split's pictures and captions among ours, by COCO's id, in our order.

    Captions that the split does not count (a picture's sixth) are left out. Pictures may be missing, up to a half of
    them; of one that is there, a caption that is missing is an error.
    """
    pictures, captions = split_ids()
    images = _positions("picture", image_ids, pictures, protocol)
    if 2 * len(images) < len(pictures):
        _refuse("picture", pictures - images.keys(), len(pictures), image_ids, protocol)
    wanted = captions & {caption for picture in images for caption in split_captions()[picture]}
    texts = _positions("caption", sentence_ids, wanted, protocol)
    if missing := wanted - texts.keys():
        _refuse("caption", missing, len(wanted), sentence_ids, protocol)
    return images, texts


def _positions(what: str, ids: Sequence[str], expected: frozenset[int], protocol: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for position, number in enumerate(coco_number(str(text)) for text in ids):
        if number not in expected or number is None:
            continue
        if number in found:
            raise DiptychError(f"the {what} with COCO id {number} comes twice", where=protocol)
        found[number] = position
    return found


def _refuse(what: str, missing: frozenset[int], of: int, ids: Sequence[str], protocol: str) -> None:
    example = f"; the first {what} here has id {ids[0]!r}" if len(ids) else ""
    raise DiptychError(
        f"{len(missing)} of the {of:,} test {what}s are not in the data, such as COCO id {min(missing)}; "
        f"expected COCO's Karpathy test split with COCO's ids{example}",
        where=protocol,
    )


def positives_of(
    protocol: str, images: list[int], texts: list[int]
) -> tuple[Positives, Positives, tuple[np.ndarray, np.ndarray]]:
    """Right pairs for each direction, and how many right answers each query has, by position: (images,), (texts,).

    Pictures of the test split that are not among ours, and their captions, are neither asked nor answers. The number
    of right answers counts two captions of ECCV Caption that are not in the test split and so are never found, as the
    package counts them.
    """
    row, column = {number: i for i, number in enumerate(images)}, {number: j for j, number in enumerate(texts)}
    shape = len(images), len(texts)
    all_images, all_texts = split_ids()
    gone = all_images - row.keys(), all_texts - column.keys()
    i2t, t2i = annotations(protocol)
    i2t = {i: [c for c in captions if c not in gone[1]] for i, captions in i2t.items() if i in row}
    t2i = {c: [i for i in pictures if i not in gone[0]] for c, pictures in t2i.items() if c in column}
    forth = np.array([(row[i], column[c]) for i, captions in i2t.items() for c in captions if c in column])
    back = np.array([(row[i], column[c]) for c, pictures in t2i.items() for i in pictures])
    sizes = np.zeros(shape[0], dtype=np.int64), np.zeros(shape[1], dtype=np.int64)
    for query, answers in i2t.items():
        sizes[0][row[query]] = len(answers)
    for query, answers in t2i.items():
        sizes[1][column[query]] = len(answers)
    i2t_pairs, t2i_pairs = (Positives.from_pairs(pairs[:, 0], pairs[:, 1], shape) for pairs in (forth, back))
    return i2t_pairs, t2i_pairs, sizes


def query_figures(query: np.ndarray, place: np.ndarray, ranks: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
    """mAP@R, R-Precision and R@1 of each query, in percent: (queries,) each.

    query, place, ranks: (r,) for every right answer, by query, best first; sizes: (queries,), R of each query
    mAP@R = 1/R sum over right answers among the first R of (how many right ones up to it) / (its rank)
    """
    group = np.cumsum(np.r_[True, query[1:] != query[:-1]]) - 1
    inside = ranks <= sizes[group]
    precision = np.bincount(group, np.where(inside, (place + 1) / ranks, 0.0), minlength=len(sizes))
    hits = np.bincount(group, inside.astype(float), minlength=len(sizes))
    return {
        "map@r": 100 * precision / sizes,
        "r-precision": 100 * hits / sizes,
        "r@1": 100.0 * (ranks[place == 0] <= 1),
    }


def eccv_caption(
    ranks: tuple[Ranks, Ranks], sizes: tuple[np.ndarray, np.ndarray]
) -> tuple[Figures, Ranges, dict[str, np.ndarray]]:
    """The figures of ECCV Caption from the ranks of every right answer; their ranges; and per-query results."""
    figures: dict[str, Figures] = {"mean": {}, "optimistic": {}, "pessimistic": {}}
    per_query: dict[str, np.ndarray] = {}
    for direction, side, size in zip(("i2t", "t2i"), ranks, sizes, strict=True):
        asking = np.unique(side.query)
        for which, values in figures.items():
            results = query_figures(side.query, side.place, getattr(side, which), size[asking])
            values.update({f"{direction}/{key}": float(np.mean(value)) for key, value in results.items()})
            if which == "mean":
                per_query |= {f"{direction}/{key}": value for key, value in results.items()}
        per_query[f"{direction}/query"] = asking
        per_query[f"{direction}/weight"] = np.full(len(asking), 1 / len(asking))
    return figures["mean"], ranges_between(figures["optimistic"], figures["pessimistic"]), per_query
