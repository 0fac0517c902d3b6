"""What was found for a query: the first answers, which of them are right, and where the right one came."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch

from diptych.data.collection import Item
from diptych.data.scenes import Captioned, captioned, holds
from diptych.evaluation.result import Evaluation
from diptych.report.subject import Subject, draw
from diptych.scoring.candidates import score_candidates
from diptych.scoring.top_k import top_k

Direction = Literal["t2i", "i2t"]
_SCENE = re.compile(r"scene-(\d+)-(\d+)")


@dataclass(frozen=True)
class RankedAnswer:
    """A picture or sentence that was found.

    right: it belongs to the query; also: it does not, but of drawn scenes it is known that the sentence is true
    """

    position: int
    score: float
    right: bool
    also: bool = False


@dataclass(frozen=True)
class AnsweredQuery:
    """A sentence (`t2i`) or picture (`i2t`) with its first answers.

    rank: where its best right answer came, from 1; the mean of best and worst where scores tie
    truth: that right answer
    """

    direction: Direction
    position: int
    rank: float
    answers: tuple[RankedAnswer, ...]
    truth: RankedAnswer


def ranks_of(evaluation: Evaluation, direction: Direction) -> dict[int, float]:
    """The rank of each query's best right answer, by the query's position."""
    results = evaluation.per_query
    middle = (results[f"{direction}/optimistic"] + results[f"{direction}/pessimistic"]) / 2
    return dict(zip(results[f"{direction}/query"].tolist(), middle.tolist(), strict=True))


def drawn_queries(evaluation: Evaluation, direction: Direction, count: int, seed: int) -> list[int]:
    """Positions of queries drawn with a seed, so that nobody chose the good ones; no two of one picture."""
    asked = evaluation.per_query[f"{direction}/query"]
    owners = evaluation.per_query[f"{direction}/owner"]
    rng = np.random.default_rng([seed, direction == "i2t"])
    chosen = draw(len(pictures := np.unique(owners)), count, int(rng.integers(2**31)))
    return [int(rng.choice(asked[owners == pictures[i]])) for i in chosen]


def worst_queries(evaluation: Evaluation, direction: Direction, count: int) -> list[int]:
    """Positions of the queries whose right answer came last, worst first; none whose right answer came first."""
    late = [(-rank, position) for position, rank in ranks_of(evaluation, direction).items() if rank > 1]
    return [position for _, position in sorted(late)[:count]]


def find_answers(
    subject: Subject, evaluation: Evaluation, direction: Direction, positions: list[int], count: int = 5
) -> list[AnsweredQuery]:
    """The first answers of the queries at those positions."""
    if not positions:
        return []
    matcher, ranks = subject.matcher, ranks_of(evaluation, direction)
    rights = [
        [int(subject.owners[p])] if direction == "t2i" else np.flatnonzero(subject.owners == p).tolist()
        for p in positions
    ]
    candidates = torch.full((len(positions), max(map(len, rights))), -1, dtype=torch.int64)
    for row, right in enumerate(rights):
        candidates[row, : len(right)] = torch.tensor(right)
    chosen = torch.tensor(positions)
    if direction == "t2i":
        asking = subject.texts[chosen]
        scores, places = top_k(matcher, subject.images, asking, count, "texts")
        own = score_candidates(matcher, asking, subject.images, candidates, "texts")
    else:
        asking = subject.images[chosen]
        scores, places = top_k(matcher, asking, subject.texts, count, "images")
        own = score_candidates(matcher, asking, subject.texts, candidates, "images")
    best = own.argmax(1)
    queries = []
    for row, position in enumerate(positions):
        answers = tuple(
            RankedAnswer(
                int(p), float(s), int(p) in rights[row], _also(subject, direction, position, int(p), rights[row])
            )
            for p, s in zip(places[row], scores[row], strict=True)
        )
        truth = RankedAnswer(int(candidates[row, best[row]]), float(own[row, best[row]]), True)
        queries.append(AnsweredQuery(direction, position, ranks[position], answers, truth))
    return queries


def _also(subject: Subject, direction: Direction, query: int, answer: int, rights: list[int]) -> bool:
    """Whether a wrong answer is true all the same, which only drawn scenes tell."""
    if answer in rights:
        return False
    sentence, picture = (query, answer) if direction == "t2i" else (answer, query)
    owner = int(subject.owners[sentence])
    teller, shown = _scene(subject.collection.items[owner]), _scene(subject.collection.items[picture])
    if teller is None or shown is None:
        return False
    text = subject.captions[sentence]
    statement = next((c.statement for c in teller.captions if c.text == text), None)
    return statement is not None and holds(shown.scene, statement)


def _scene(item: Item) -> Captioned | None:
    """The scene that an item shows, where its id and its sentences say that it is one."""
    named = _SCENE.fullmatch(item.id.removesuffix(".png"))
    if named is None:
        return None
    scene = _captioned(int(named[1]), int(named[2]))
    told = {caption.text for caption in scene.captions}
    return scene if all(sentence.text in told for sentence in item.sentences) else None


@lru_cache(maxsize=512)
def _captioned(seed: int, index: int) -> Captioned:
    return captioned(seed, index)
