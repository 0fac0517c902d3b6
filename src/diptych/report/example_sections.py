"""Examples as in CAMP's figure 4, and the worst failures: queries with what was found for them."""

from collections.abc import Sequence
from dataclasses import dataclass

from diptych.evaluation.result import Evaluation
from diptych.report.axes import number
from diptych.report.parts import Pictures, Section, Thumbnail, section
from diptych.report.retrieval import AnsweredQuery, RankedAnswer, drawn_queries, find_answers, worst_queries
from diptych.report.subject import Subject

SENTENCES, PICTURES, WORST = 6, 5, 6
FIRST = 5
SIGNS = {"right": ("✓", "right"), "also": ("≈", "true too"), "wrong": ("✗", "wrong")}


@dataclass(frozen=True)
class ShownAnswer:
    """An answer as the page shows it: `right`, `also` or `wrong`, with a sign and a word for it.

    rank: where it came, where that is told; picture or text: what it is
    """

    kind: str
    sign: str
    word: str
    score: float
    rank: str
    picture: Thumbnail | None
    text: str


@dataclass(frozen=True)
class ShownQuery:
    """A query as the page shows it: a picture, or a sentence, and its answers."""

    position: int
    text: str
    rank: str
    picture: Thumbnail | None
    answers: tuple[ShownAnswer, ...]


def examples_section(subject: Subject, evaluation: Evaluation, pictures: Pictures, seed: int) -> Section:
    """The first five answers of queries that were drawn, not chosen."""
    told = find_answers(subject, evaluation, "t2i", drawn_queries(evaluation, "t2i", SENTENCES, seed), FIRST)
    shown = find_answers(subject, evaluation, "i2t", drawn_queries(evaluation, "i2t", PICTURES, seed), FIRST)
    values = _values(subject, pictures, told, shown, failed=False)
    return section("examples", "Examples", values | {"seed": seed, "first": FIRST})


def failures_section(subject: Subject, evaluation: Evaluation, pictures: Pictures) -> Section:
    """The queries whose right answer came last, with what came first."""
    told = find_answers(subject, evaluation, "t2i", worst_queries(evaluation, "t2i", WORST), FIRST - 1)
    shown = find_answers(subject, evaluation, "i2t", worst_queries(evaluation, "i2t", WORST), FIRST)
    return section("failures", "The worst failures", _values(subject, pictures, told, shown, failed=True))


def _values(
    subject: Subject,
    pictures: Pictures,
    told: Sequence[AnsweredQuery],
    shown: Sequence[AnsweredQuery],
    failed: bool,
) -> dict[str, object]:
    """What both templates take: sentences that were told, pictures that were shown, and the signs that occur."""
    return {
        "searched": _searched(subject),
        "also": any(answer.also for query in (*told, *shown) for answer in query.answers),
        "told": [_shown(query, subject, pictures, failed) for query in told],
        "shown": [_shown(query, subject, pictures, failed) for query in shown],
    }


def _searched(subject: Subject) -> str:
    drawn = f" (drawn from the {subject.whole:,} of the split)" if subject.sampled else ""
    return f"{len(subject.collection):,} pictures{drawn} and {len(subject.captions):,} sentences"


def _shown(query: AnsweredQuery, subject: Subject, pictures: Pictures, failed: bool) -> ShownQuery:
    answers = [_answer(answer, query, subject, pictures) for answer in query.answers]
    if failed:
        answers.append(_answer(query.truth, query, subject, pictures, f"rank {number(query.rank)}"))
    rank = "the right one came first" if query.rank == 1 else f"the right one came at rank {number(query.rank)}"
    if query.direction == "t2i":
        return ShownQuery(query.position, subject.captions[query.position], rank, None, tuple(answers))
    item = subject.collection.items[query.position]
    return ShownQuery(query.position, item.id, rank, pictures.of(item), tuple(answers))


def _answer(
    answer: RankedAnswer, query: AnsweredQuery, subject: Subject, pictures: Pictures, rank: str = ""
) -> ShownAnswer:
    kind = "right" if answer.right else "also" if answer.also else "wrong"
    sign, word = SIGNS[kind]
    if query.direction == "t2i":
        picture = pictures.of(subject.collection.items[answer.position])
        return ShownAnswer(kind, sign, word, answer.score, rank, picture, "")
    return ShownAnswer(kind, sign, word, answer.score, rank, None, subject.captions[answer.position])
