"""What a model finds and what it does not: a sheet in Markdown, of a dataset's own sentences. No picture is in it.

    python docs/_make/best_and_worst.py DATA                  # the test split, with the model that ships
    python docs/_make/best_and_worst.py DATA --split val --model runs/mine --out sheet.md

Every sentence asks for its picture among all of the split. Words and kinds of sentence are set beside the whole; then
come the sentences that are surest, and those that are furthest off.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from diptych.cli.models import load_model
from diptych.common.errors import DiptychError
from diptych.data.collection import Collection
from diptych.data.read import read_collection
from diptych.evaluation.encode import encode_collection
from diptych.matchers.base import Matcher
from diptych.matchers.kept import Kept

BLOCK = 256
KINDS = {
    "a number (two … ten)": r"two|three|four|five|six|seven|eight|nine|ten",
    "a colour": r"red|green|blue|yellow|orange|purple|pink|brown|black|white|gr[ae]y",
    "a place (left, right, above, under, behind, between)": r"left|right|above|below|under|beneath|behind|between",
    "writing (sign, says, reads, words, letters)": r"signs?|says|reads|words?|letters?|written",
    "nothing there (no, without, empty)": r"no|without|empty|nobody",
    "a man, a woman, people": r"man|men|woman|women|people|person|boy|girl|child|children|guy|lady",
    "an animal": r"dogs?|cats?|horses?|birds?|cows?|sheep|elephants?|bears?|zebras?|giraffes?",
}
STOP = frozenset(
    "a an the of in on at to with and is are be was by for from it its that this there some his her their one up down "
    "out into over near next two while has have as or it's him them he she who which other very being".split()
)


@dataclass(frozen=True)
class Asked:
    """How each sentence fared: ranks (sentences,) from 1, margins over the best wrong picture, and that picture."""

    texts: Sequence[str]
    owners: np.ndarray
    ranks: np.ndarray
    margins: np.ndarray
    wrong: np.ndarray


def ask(matcher: Matcher, images: Kept, texts: Kept, owners: np.ndarray, sentences: Sequence[str]) -> Asked:
    """Score every sentence with every picture, a block of sentences at a time; ties count against the right picture."""
    ranks, margins, wrong = [], [], []
    for start in range(0, len(sentences), BLOCK):
        part = slice(start, start + BLOCK)
        with matcher.inference():
            scores = matcher.score(images, texts[part]).float().cpu()
        own = torch.as_tensor(owners[part])[None]
        right = scores.gather(0, own)
        ranks.append((scores >= right).sum(0))
        best, place = scores.scatter(0, own, -torch.inf).max(0)
        margins.append(right[0] - best)
        wrong.append(place)
    columns = [torch.cat(parts).numpy() for parts in (ranks, margins, wrong)]
    return Asked(sentences, owners, *columns)


def sheet(asked: Asked, first: Sequence[str], least: int, lines: int) -> str:
    """The sheet; `first` has a sentence of each picture, `least` the sentences that a word must have."""
    whole = _figures(asked.ranks)
    kinds = {
        name: np.array([bool(re.search(rf"\b({pattern})\b", text.lower())) for text in asked.texts])
        for name, pattern in KINDS.items()
    }
    found = {name: asked.ranks[which] for name, which in kinds.items() if which.any()}
    parts = [
        f"{len(asked.texts):,} sentences, {len(first):,} pictures: {whole}",
        "",
        "| sentences with | how many | R@1 | R@10 |",
        "|---|---|---|---|",
        f"| anything | {len(asked.ranks):,} | {_share(asked.ranks, 1)} | {_share(asked.ranks, 10)} |",
        *(f"| {name} | {len(ranks):,} | {_share(ranks, 1)} | {_share(ranks, 10)} |" for name, ranks in found.items()),
        "",
    ]
    words = _words(asked, least)
    ordered = sorted(words, key=lambda word: float(np.mean(words[word] <= 1)))
    for title, some in (("most often", ordered[::-1][:lines]), ("least often", ordered[:lines])):
        told = ", ".join(f"{word} ({_share(words[word], 1)})" for word in some)
        parts += [
            f"Words in {least} sentences or more that find their picture first {title} (R@1): {told}.",
            "",
        ]
    parts += ["Surest, by the margin over the best wrong picture:", ""]
    parts += [
        f"- {_text(asked, i)} ({asked.margins[i]:.2f})" for i in _one_each(asked, np.argsort(-asked.margins), lines)
    ]
    parts += ["", "Furthest off, with the rank, and what the picture that came first is said to show:", ""]
    for i in _one_each(asked, np.argsort(-asked.ranks, kind="stable"), lines):
        parts.append(f"- {_text(asked, i)} ({asked.ranks[i]:,}): {_tidy(first[asked.wrong[i]])}")
    return "\n".join(parts)


def _words(asked: Asked, least: int) -> Mapping[str, np.ndarray]:
    ranks: dict[str, list[int]] = defaultdict(list)
    for text, rank in zip(asked.texts, asked.ranks, strict=True):
        for word in set(re.findall(r"[a-z']+", text.lower())) - STOP:
            ranks[word].append(int(rank))
    return {word: np.array(some) for word, some in ranks.items() if len(some) >= least}


def _one_each(asked: Asked, order: np.ndarray, count: int) -> list[int]:
    """The first sentences in an order, one a picture."""
    chosen: dict[int, int] = {}
    for i in order:
        chosen.setdefault(int(asked.owners[i]), int(i))
        if len(chosen) == count:
            break
    return list(chosen.values())


def _figures(ranks: np.ndarray) -> str:
    return ", ".join(f"R@{k} {_share(ranks, k)}" for k in (1, 5, 10)) + f", median rank {np.median(ranks):g}"


def _share(ranks: np.ndarray, k: int) -> str:
    return f"{100 * np.mean(ranks <= k):.1f}"


def _text(asked: Asked, i: int) -> str:
    return f"“{_tidy(asked.texts[i])}”"


def _tidy(text: str) -> str:
    return " ".join(text.split()).rstrip(" .")


def main() -> None:
    """Parse, ask, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="anything that `diptych data` reads")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default="default")
    parser.add_argument("--device", default=None)
    parser.add_argument("--least", type=int, default=60, help="sentences that a word must be in")
    parser.add_argument("--lines", type=int, default=12, help="words and sentences in each list")
    parser.add_argument("--out", type=Path, help="a file to write; else it is printed")
    given = parser.parse_args()
    try:
        collection: Collection = read_collection(given.data).split(given.split)
        matcher = load_model(given.model, given.device)
        images, texts = encode_collection(matcher, collection, 16)
    except DiptychError as error:
        sys.exit(f"error: {error}")
    sentences, owners = collection.captions()
    asked = ask(matcher, images, texts, np.asarray(owners), sentences)
    told = sheet(asked, [item.sentences[0].text for item in collection.items], given.least, given.lines)
    if given.out is None:
        print(told)
    else:
        given.out.write_text(told + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
