"""ECCV Caption and CxC on a part of COCO's test pictures, where not all 5,000 are at hand.

    python docs/_make/eccv_of_part.py COCO --karpathy dataset_coco.json

`diptych evaluate --protocol eccv` wants the whole split. Here right answers that are not in the part are left out, and
so are queries with none left; R of mAP@R and R-Precision is the number of those that are there. Captions are known by
their text: Karpathy's JSON has their numbers.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diptych.cli.models import load_model
from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from diptych.evaluation.eccv import annotations, coco_number, eccv_caption
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.figures import with_ranges
from diptych.evaluation.positives import Positives
from diptych.evaluation.ranks import count_ranks
from diptych.evaluation.sources import MatcherSource, ScoreSource


def caption_numbers(pictures: Sequence[int | None], texts: Sequence[str], karpathy: Path) -> list[int]:
    """COCO's number of each caption, given its picture's number."""
    known: dict[tuple[int, str], list[int]] = {}
    for image in json.loads(karpathy.read_text(encoding="utf-8"))["images"]:
        for sentence in image["sentences"]:
            known.setdefault((image["cocoid"], " ".join(sentence["raw"].split())), []).append(sentence["sentid"])
    numbers = []
    for picture, text in zip(pictures, texts, strict=True):
        found = known.get((picture or 0, " ".join(text.split())))
        if not found:
            raise DiptychError(f"no caption of picture {picture} reads {text!r}", where=karpathy)
        numbers.append(found.pop(0))
    return numbers


def figures(source: ScoreSource, pictures: Sequence[int | None], captions: Sequence[int]) -> dict[str, float]:
    """Both protocols' figures of scores whose pictures and captions have these numbers, and how many ask."""
    rows, columns = ({number: i for i, number in enumerate(side)} for side in (pictures, captions))
    shape, told = (len(pictures), len(captions)), dict[str, float]()
    for protocol in ("eccv", "cxc"):
        i2t, t2i = annotations(protocol)
        forth = [(rows[i], columns[c]) for i, some in i2t.items() if i in rows for c in some if c in columns]
        back = [(rows[i], columns[c]) for c, some in t2i.items() if c in columns for i in some if i in rows]
        pairs = [Positives.from_pairs(*np.array(some).T, shape) for some in (forth, back)]
        if protocol == "eccv":
            sizes = np.bincount(pairs[0].images, minlength=shape[0]), np.bincount(pairs[1].texts, minlength=shape[1])
            ranks = count_ranks(source, *pairs, every=True)
            found, _, _ = eccv_caption(ranks, sizes)
        else:
            ranks = count_ranks(source, *pairs)
            found, _ = with_ranges([ranks])
        found |= {f"{way}/ask": len(np.unique(side.query)) for way, side in zip(("i2t", "t2i"), ranks, strict=True)}
        told |= {f"{protocol}/{name}": value for name, value in found.items()}
    return told


def main() -> None:
    """Parse, encode, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="anything that `diptych data` reads, with COCO's numbers as ids")
    parser.add_argument("--karpathy", type=Path, required=True, help="Karpathy's JSON")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    try:
        collection = read_collection(given.data).split(given.split)
        texts, owners = collection.captions()
        pictures = [coco_number(item.id) for item in collection.items]
        captions = caption_numbers([pictures[owner] for owner in owners], texts, given.karpathy)
        matcher = load_model(given.model, given.device)
        told = figures(MatcherSource(matcher, *encode_collection(matcher, collection)), pictures, captions)
    except DiptychError as error:
        sys.exit(f"error: {error}")
    print(json.dumps({name: round(value, 2) for name, value in told.items()}, indent=1))


if __name__ == "__main__":
    main()
