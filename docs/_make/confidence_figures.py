"""What confidences are worth: how many true captions are missed, and how many absent things raise an alarm.

    python docs/_make/confidence_figures.py FLICKR8K COCO --captions 5 2 --split val --fit # for asking/calibration.py
    python docs/_make/confidence_figures.py FLICKR8K COCO --captions 5 2 --draws 2         # for docs/searching.md

Some pictures of a split are indexed, and each is asked for with one of its captions. Absent are captions of the others
that are unlike all captions of what is indexed (cosines of the plain MiniLM below 0.5), and of the names in things.txt
those that no indexed caption mentions; present are those that half of the captions of some indexed picture mention.
Vectors are kept in --vectors, so that a second run is quick. The plain MiniLM needs `pip install 'diptych[backbones]'`.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from diptych.common.errors import DiptychError
from diptych.data.read import read_collection
from diptych.encoders.sources import text_source
from diptych.search.asking.calibration import MEASURED, USUAL, Calibration
from diptych.search.asking.confidence import Chance
from diptych.search.asking.query import SearchQuery
from diptych.search.asking.results import MATCHES
from diptych.search.index import Index
from diptych.search.models.embedder import Embedder, load_embedder

SIZES = (53, 239, 500, 1000, 4000)
UNLIKE = 0.5
MOST = 1500  # queries of a kind
SHOWN = 10  # results of a query
THINGS = Path(__file__).with_name("things.txt")
UPPER = np.linspace(0.5, 0.98, 49)


@dataclass(frozen=True, eq=False)
class Part:
    """A split: pictures (n, d), captions (m, d) and what the plain MiniLM makes of them (m, 384), owners, texts."""

    pictures: np.ndarray
    captions: np.ndarray
    plain: np.ndarray
    owners: np.ndarray
    texts: np.ndarray

    def joined(self, other: "Part") -> "Part":
        """Both together."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("pictures", "captions", "plain", "texts")]
        pictures, captions, plain, texts = (np.concatenate(pair) for pair in pairs)
        return Part(pictures, captions, plain, np.r_[self.owners, other.owners + len(self.pictures)], texts)


@dataclass(frozen=True)
class Asked:
    """How far a result of each query stands out, in widths of the unrelated queries' law; best cosines; words."""

    out: np.ndarray
    score: np.ndarray
    words: np.ndarray


def read_part(embedder: Embedder, data: Path, split: str, captions: int, folder: Path) -> Part:
    """A split's vectors, from the folder where they are there."""
    path = folder / f"{data.name}-{split}-{captions}.npz"
    if not path.is_file():
        items = read_collection(data).split(split).items
        texts = [sentence.text for item in items for sentence in item.sentences[:captions]]
        owners = [row for row, item in enumerate(items) for _ in item.sentences[:captions]]
        pictures = embedder.embed_pictures([item.open for item in items if item.open is not None])[:, 0]
        vectors = np.concatenate([embedder.embed_texts(texts[i : i + 64])[:, 0] for i in range(0, len(texts), 64)])
        folder.mkdir(parents=True, exist_ok=True)
        kept = {"pictures": pictures, "captions": vectors, "plain": plain_vectors(texts)}
        np.savez(path, **kept, owners=np.array(owners), texts=np.array(texts))
    with np.load(path) as arrays:
        return Part(*(arrays[name] for name in ("pictures", "captions", "plain", "owners", "texts")))


def plain_vectors(texts: Sequence[str]) -> np.ndarray:
    """What MiniLM makes of sentences, as it comes: unit vectors (m, 384)."""
    from transformers import AutoModel, AutoTokenizer

    source = str(text_source("minilm"))
    tokenizer, model = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source).eval()
    parts = []
    for start in range(0, len(texts), 64):
        tokens = tokenizer(list(texts[start : start + 64]), padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**tokens).last_hidden_state
        real = tokens["attention_mask"][..., None].float()
        parts.append(torch.nn.functional.normalize((hidden * real).sum(1) / real.sum(1), dim=1).numpy())
    return np.concatenate(parts)


@lru_cache
def mentions(part: Part) -> tuple[list[str], np.ndarray]:
    """Names of things, and the share (things, pictures) of each picture's captions that mention each."""
    lines = [line.partition(": ") for line in THINGS.read_text(encoding="utf-8").splitlines()]
    counts = np.zeros((len(lines), len(part.pictures)))
    for row, (_, _, pattern) in enumerate(lines):
        said = [bool(re.search(rf"\b({pattern})\b", text.lower())) for text in part.texts]
        np.add.at(counts[row], part.owners[said], 1)
    return [name for name, _, _ in lines], counts / np.bincount(part.owners, minlength=len(part.pictures))


def draws(part: Part, size: int, count: int, embedder: Embedder) -> Iterator[dict[str, Asked]]:
    """Of several drawn indexes: how true captions fare, absent ones, present things, and absent ones."""
    names, shares = mentions(part)
    things = embedder.embed_texts(names)[:, 0]
    words = np.array([len(text.split()) for text in part.texts])
    of_things = np.array([len(name.split()) for name in names])
    for seed in range(count):
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.permutation(len(part.pictures))[:size])
        inside = np.isin(part.owners, rows)
        first = rng.permutation(np.flatnonzero(inside))
        own = first[np.unique(part.owners[first], return_index=True)[1]]
        absent = np.flatnonzero(~inside)
        blocks = [absent[i : i + 2000] for i in range(0, len(absent), 2000)]
        like = [(part.plain[block] @ part.plain[inside].T).max(1) for block in blocks]
        absent = absent[np.concatenate([*like, np.zeros(0)]) < UNLIKE]
        own, absent = rng.permutation(own)[:MOST], rng.permutation(absent)[:MOST]
        here, away = (shares[:, rows] >= 0.5).any(1), (shares[:, rows] == 0).all(1)
        pictures = part.pictures[rows]
        chance, spreads = chance_in(pictures, embedder)
        yield {
            "true": asked(embedder, part.captions[own], words[own], pictures, chance, spreads),
            "absent": asked(embedder, part.captions[absent], words[absent], pictures, chance, spreads),
            "things": asked(embedder, things[here], of_things[here], pictures, chance, spreads),
            "no things": asked(embedder, things[away], of_things[away], pictures, chance, spreads),
        }


def chance_in(pictures: np.ndarray, embedder: Embedder) -> tuple[Chance, np.ndarray]:
    """What unrelated sentences find in an index of these pictures, and the deviations of their scores with each."""
    with tempfile.TemporaryDirectory() as folder, Index.create(Path(folder) / "index.db", embedder) as index:
        index.add_vectors([f"{row:05d}" for row in range(len(pictures))], pictures[:, None])
        background = index.searcher.background
        spreads = (background.sentences()[:, 0] @ pictures.T).std(0)
        return background.chance(SearchQuery.of_sentence(), "picture"), spreads


def asked(
    embedder: Embedder,
    queries: np.ndarray,
    words: np.ndarray,
    pictures: np.ndarray,
    chance: Chance,
    spreads: np.ndarray,
) -> Asked:
    """Ask an index of pictures; the surest of the SHOWN that come first counts."""
    cosines = embedder.unlevelled(queries) @ pictures.T
    z, scores = chance.z(cosines, spreads), queries @ pictures.T
    shown = min(SHOWN, len(pictures))
    first = np.argpartition(-scores, shown - 1, 1)[:, :shown]
    best = np.take_along_axis(z, first, 1).max(1) if len(queries) else np.zeros(0)
    return Asked((best - chance.law.place) / chance.law.width, cosines.max(1, initial=-1), words)


def fit(cells: Sequence[dict[str, Asked]]) -> Calibration:
    """The law of absent captions and absent things, each cell and both kinds weighing the same."""

    def moved(by_word: float, kind: str) -> np.ndarray:
        logs = [one.out - by_word * np.log(one.words / USUAL) for c in cells if len((one := c[kind]).out) >= 30]
        return np.mean([np.quantile(some, UPPER) for some in logs], 0)

    grid = np.linspace(0, 1, 101)
    uneven = [abs((moved(g, "absent") - moved(g, "no things"))[UPPER >= 0.9].mean()) for g in grid]
    by_word = float(grid[int(np.argmin(uneven))])
    y, x = (moved(by_word, "absent") + moved(by_word, "no things")) / 2, -np.log(-np.log(UPPER))
    wider = float(np.cov(x, y)[0, 1] / np.var(x, ddof=1))
    return Calibration(round(float(y.mean() - wider * x.mean()), 2), round(by_word, 2), round(wider, 2))


def confidence(one: Asked, calibration: Calibration) -> np.ndarray:
    """The confidence of each query's best result."""
    place = calibration.further + calibration.by_word * np.log(one.words / USUAL)
    return np.asarray(np.exp(-np.exp(-(one.out - place) / calibration.wider)))


def area(present: np.ndarray, absent: np.ndarray) -> float:
    """The chance that something present stands above something absent; ties count half."""
    if not len(present) or not len(absent):
        return float("nan")
    ordered = np.sort(absent)
    below = np.searchsorted(ordered, present, "left") + np.searchsorted(ordered, present, "right")
    return float(below.mean() / (2 * len(absent)))


def row(cells: Sequence[dict[str, Asked]], calibration: Calibration, present: str, absent: str) -> str:
    """Missed and alarms at MATCHES, missed at 5 % alarms, areas under the curve of the confidence and of the cosine."""
    figures = []
    for cell in cells:
        here, away = cell[present], cell[absent]
        if len(away.out) >= 30:
            sure, unsure = confidence(here, calibration), confidence(away, calibration)
            at_five = float((sure <= np.quantile(unsure, 0.95)).mean())
            least, alarms = float((sure < MATCHES).mean()), float((unsure >= MATCHES).mean())
            areas = area(sure, unsure), area(here.score, away.score)
            figures.append([len(away.out), 100 * least, 100 * alarms, 100 * at_five, *areas])
    if not figures:
        return "| | | | | |"
    count, least, alarms, at_five, sure, score = np.mean(figures, 0)
    return f"{count:,.0f} | {least:.0f} %, {alarms:.0f} % | {at_five:.0f} % | {sure:.3f} | {score:.3f} |"


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="anything that `diptych data` reads")
    parser.add_argument("--split", default="test")
    parser.add_argument("--captions", type=int, nargs="+", default=[5], help="of a picture, for each of the data")
    parser.add_argument("--model", default="default")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="pictures that are indexed")
    parser.add_argument("--fit", action="store_true", help="find the model's calibration, and judge that")
    parser.add_argument("--vectors", type=Path, default=Path("confidence-vectors"))
    given = parser.parse_args()
    try:
        embedder = load_embedder(given.model)
        each = given.captions * (len(given.data) if len(given.captions) == 1 else 1)
        parts = {
            data.name: read_part(embedder, data, given.split, count, given.vectors)
            for data, count in zip(given.data, each, strict=True)
        }
    except DiptychError as error:
        sys.exit(f"error: {error}")
    if len(parts) == 2:
        one, other = parts.values()
        parts["both"] = one.joined(other)
    cells = {
        (name, size): list(draws(part, size, given.draws, embedder))
        for name, part in parts.items()
        for size in given.sizes
        if size <= len(part.pictures)
    }
    calibration = MEASURED.get(embedder.name, Calibration())
    if given.fit:
        calibration = fit([cell for some in cells.values() for cell in some])
        print(calibration)
    for title, pair in (("captions", ("true", "absent")), ("names of things", ("things", "no things"))):
        shown = ("indexed", "absent", f"missed, alarms at {MATCHES}", "missed at 5 % alarms", "area", "of the cosine")
        print("\n|", " | ".join((f"{given.split}, {title}", *shown)), "|\n" + "|---" * 7 + "|")
        for (name, size), some in cells.items():
            print(f"| {name} | {size:,} | {row(some, calibration, *pair)}")


if __name__ == "__main__":
    main()
