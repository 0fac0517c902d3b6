"""The protocols: which pictures meet which sentences, which pairs are right, and which figures come out."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from diptych.common.errors import DiptychError, nearest
from diptych.data.collection import Collection
from diptych.evaluation.eccv import eccv_caption, gallery, positives_of
from diptych.evaluation.figures import Figures, Ranges, with_ranges
from diptych.evaluation.positives import Positives, as_owners
from diptych.evaluation.ranks import Ranks, count_ranks
from diptych.evaluation.result import Evaluation, prefixed
from diptych.evaluation.sources import ScoreSource

PROTOCOLS = {
    "flickr30k": "Flickr30K: 1,000 test pictures with five sentences each",
    "coco-1k": "COCO 1K: the mean over consecutive folds of 1,000 test pictures with five sentences each",
    "coco-5k": "COCO 5K: all 5,000 test pictures with five sentences each",
    "eccv": "ECCV Caption: mAP@R, R-Precision and R@1 on COCO's test pictures, with the missing right pairs added",
    "cxc": "CrissCrossed Captions: recall on COCO's test pictures, with the missing right pairs added",
    "all-pairs": "every picture with every sentence of any collection",
}
# The protocols of each dataset of the papers, and how many pictures each protocol has there.
DATASETS = {"flickr30k": ("flickr30k",), "coco": ("coco-1k", "coco-5k", "eccv", "cxc")}
PICTURES = {"flickr30k": 1000, "coco-1k": 5000, "coco-5k": 5000, "eccv": 5000, "cxc": 5000}
FIVE = ("flickr30k", "coco-1k", "coco-5k")
FOLD = 1000
PerQuery = dict[str, np.ndarray]


def check_protocol(protocol: str) -> None:
    """Refuse a protocol that does not exist."""
    if protocol not in PROTOCOLS:
        raise DiptychError(f"protocol: {protocol!r} does not exist; {nearest(protocol, list(PROTOCOLS))}")


def fit_collection(collection: Collection, protocol: str) -> tuple[Collection, list[str]]:
    """The pictures and sentences that a protocol takes, and notes on what it left out.

    A few pictures of Flickr30K and COCO have six or seven sentences; the field takes the first five.
    """
    if protocol not in FIVE:
        return collection, []
    extra = sum(max(0, len(item.sentences) - 5) for item in collection.items)
    if not extra:
        return collection, []
    items = [replace(item, sentences=item.sentences[:5]) for item in collection.items]
    note = f"{protocol} takes five sentences a picture: {extra} further ones were left out"
    return replace(collection, items=items), [note]


def evaluate_source(
    source: ScoreSource,
    owners: np.ndarray,
    protocol: str = "all-pairs",
    image_ids: Sequence[str] | None = None,
    sentence_ids: Sequence[str] | None = None,
    fold: int = FOLD,
) -> Evaluation:
    """Evaluate any source of scores; `owners` (sentences,) gives the picture of each sentence.

    image_ids, sentence_ids: the source's ids; ECCV Caption and CxC find COCO's pictures and captions by them
    fold: pictures in a fold of coco-1k
    """
    check_protocol(protocol)
    images, sentences = source.shape
    owners = as_owners(owners, images)
    if len(owners) != sentences:
        raise DiptychError(f"owners: expected one for each of {sentences} sentences, got {len(owners)}")
    for name, ids, size in (("image_ids", image_ids, images), ("sentence_ids", sentence_ids, sentences)):
        if ids is not None and len(ids) != size:
            raise DiptychError(f"expected {size}, got {len(ids)}", where=name)
    notes: tuple[str, ...] = ()
    if protocol in ("eccv", "cxc"):
        if image_ids is None or sentence_ids is None:
            raise DiptychError("needs image_ids and sentence_ids, which tie scores to COCO's captions", where=protocol)
        figures, ranges, per_query, notes = _annotated(source, owners, protocol, image_ids, sentence_ids)
    elif protocol == "coco-1k":
        figures, ranges, per_query = _folds(source, owners, fold)
        if rest := images % fold:
            count = images // fold
            folds = f"{count} fold{'s' if count > 1 else ''} of {fold:,} pictures"
            notes = (f"coco-1k took {folds}: the last {rest:,} of {images:,} pictures were left out",)
    else:
        ranks = count_ranks(source, Positives.from_owners(owners, images))
        figures, ranges = with_ranges([ranks])
        per_query = rank_results(*ranks, owners)
    if image_ids is not None:
        per_query["image_ids"] = np.array(image_ids, dtype=np.str_)
    if sentence_ids is not None:
        per_query["sentence_ids"] = np.array(sentence_ids, dtype=np.str_)
    return Evaluation(
        protocol=protocol,
        figures={prefixed(protocol, key): value for key, value in figures.items()},
        ranges={prefixed(protocol, key): ends for key, ends in ranges.items()},
        images=images,
        sentences=sentences,
        per_query=per_query,
        notes=notes,
    )


def rank_results(i2t: Ranks, t2i: Ranks, owners: np.ndarray) -> PerQuery:
    """What is kept of each query's ranks; `owners` (sentences,), the picture of each sentence."""
    results: PerQuery = {}
    for direction, ranks, owner in (("i2t", i2t, i2t.query), ("t2i", t2i, owners[t2i.query])):
        results[f"{direction}/query"] = ranks.query
        results[f"{direction}/owner"] = owner
        results[f"{direction}/weight"] = np.full(len(owner), 1 / len(owner))
        results[f"{direction}/optimistic"] = ranks.optimistic
        results[f"{direction}/pessimistic"] = ranks.pessimistic
    return results


def _folds(source: ScoreSource, owners: np.ndarray, fold: int) -> tuple[Figures, Ranges, PerQuery]:
    """Each fold of consecutive pictures meets its own sentences only; the figures are the folds' means.

    Of COCO's 5,000 test pictures some may be missing; what does not fill a fold is left out.
    """
    images = source.shape[0]
    count = images // fold
    if not count:
        raise DiptychError(
            f"coco-1k: {images} pictures cannot be cut into folds of {fold:,}; "
            "expected one at least, such as the five of COCO's Karpathy test split"
        )
    folds: list[tuple[Ranks, Ranks]] = []
    results: list[PerQuery] = []
    for start in range(0, count * fold, fold):
        rows = np.arange(start, start + fold)
        columns = np.flatnonzero((owners >= start) & (owners < start + fold))
        if not len(columns):
            raise DiptychError(f"coco-1k: pictures {start} to {start + fold - 1} have no sentence")
        inside = owners[columns] - start
        ranks = count_ranks(source.part(rows, columns), Positives.from_owners(inside, fold))
        folds.append(ranks)
        result = rank_results(*ranks, inside)
        result["i2t/query"], result["t2i/query"] = rows[ranks[0].query], columns[ranks[1].query]
        for direction in ("i2t", "t2i"):
            result[f"{direction}/owner"] = result[f"{direction}/owner"] + start
            result[f"{direction}/weight"] = result[f"{direction}/weight"] / count
        results.append(result)
    joined = {key: np.concatenate([result[key] for result in results]) for key in results[0]}
    return *with_ranges(folds), joined


def _annotated(
    source: ScoreSource, owners: np.ndarray, protocol: str, image_ids: Sequence[str], sentence_ids: Sequence[str]
) -> tuple[Figures, Ranges, PerQuery, tuple[str, ...]]:
    """ECCV Caption and CxC: their right pairs, on those of COCO's 5,000 test pictures that are there."""
    images, texts = gallery(protocol, image_ids, sentence_ids)
    rows, columns = np.array(list(images.values())), np.array(list(texts.values()))
    i2t, t2i, sizes = positives_of(protocol, list(images), list(texts))
    whole = np.array_equal(rows, np.arange(source.shape[0])) and np.array_equal(columns, np.arange(source.shape[1]))
    part = source if whole else source.part(rows, columns)
    inside = _positions(rows, source.shape[0])[owners[columns]]
    if protocol == "eccv":
        figures, ranges, per_query = eccv_caption(count_ranks(part, i2t, t2i, every=True), sizes)
        per_query["i2t/owner"], per_query["t2i/owner"] = per_query["i2t/query"], inside[per_query["t2i/query"]]
    else:
        ranks = count_ranks(part, i2t, t2i)
        figures, ranges = with_ranges([ranks])
        per_query = rank_results(*ranks, inside)
    per_query["i2t/query"], per_query["t2i/query"] = rows[per_query["i2t/query"]], columns[per_query["t2i/query"]]
    for direction in ("i2t", "t2i"):
        per_query[f"{direction}/owner"] = rows[per_query[f"{direction}/owner"]]
    missing = PICTURES[protocol] - len(rows)
    told = f"{protocol} took the {len(rows):,} of {PICTURES[protocol]:,} test pictures that are in the data"
    return figures, ranges, per_query, (f"{told}: figures are a little higher than on all",) if missing else ()


def _positions(chosen: np.ndarray, size: int) -> np.ndarray:
    where = np.full(size, -1)
    where[chosen] = np.arange(len(chosen))
    return where
