"""What was found, beside a loop over the whole matrix of scores."""

import numpy as np
import pytest

from diptych.data.scenes import captioned, holds, scenes_collection
from diptych.data.tokens import WordTokenizer
from diptych.data.vocabulary import Vocabulary
from diptych.matchers.catalog import build_matcher
from diptych.report.retrieval import Direction, drawn_queries, find_answers, ranks_of, worst_queries
from diptych.report.subject import look_at
from diptych.scoring.blocks import score_all
from tests.report import runs

DIRECTIONS: list[Direction] = ["t2i", "i2t"]


def slow_rank(scores: np.ndarray, rights: list[int]) -> int:
    best = max(scores[r] for r in rights)
    return 1 + sum(1 for i, s in enumerate(scores) if i not in rights and s > best)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", ["vse++", "camp", "dive"])
def test_answers_ranks_and_marks_agree_with_a_loop(case: str, direction: Direction) -> None:
    subject = runs.subject(case)
    matrix = score_all(subject.matcher, subject.images, subject.texts).numpy()
    matrix = matrix.T if direction == "t2i" else matrix
    evaluation = subject.evaluate()
    positions = list(range(len(matrix)))
    found = find_answers(subject, evaluation, direction, positions, 5)
    for query in found:
        row = matrix[query.position]
        rights = [
            i
            for i in range(len(row))
            if (subject.owners[query.position] == i if direction == "t2i" else subject.owners[i] == query.position)
        ]
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        assert [a.score for a in query.answers] == pytest.approx([row[i] for i in order[:5]], abs=1e-5)
        assert [a.right for a in query.answers] == [a.position in rights for a in query.answers]
        assert query.truth.position in rights
        assert query.truth.score == pytest.approx(max(row[r] for r in rights), abs=1e-5)
        ties = np.isclose(row, max(row[r] for r in rights), atol=1e-6).sum()
        assert abs(query.rank - slow_rank(row, rights)) <= ties


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_worst_come_first(direction: Direction) -> None:
    evaluation = runs.subject("scan-t2i-mean").evaluate()
    ranks = ranks_of(evaluation, direction)
    worst = worst_queries(evaluation, direction, 4)
    assert len(worst) == 4
    assert [ranks[q] for q in worst] == sorted(ranks.values(), reverse=True)[:4]
    everything = worst_queries(evaluation, direction, 10**6)
    assert set(everything) == {q for q, rank in ranks.items() if rank > 1}


def test_examples_are_of_different_pictures() -> None:
    subject = runs.subject("vse++")
    evaluation = subject.evaluate()
    chosen = drawn_queries(evaluation, "t2i", 6, 1)
    assert len({int(subject.owners[q]) for q in chosen}) == 6
    assert chosen == drawn_queries(evaluation, "t2i", 6, 1)
    assert chosen != drawn_queries(evaluation, "t2i", 6, 2)


def test_of_drawn_scenes_a_sentence_that_is_true_all_the_same_is_marked() -> None:
    collection = scenes_collection(60, seed=4, regions="boxes")
    tokenizer = WordTokenizer(Vocabulary.build(collection.captions()[0], at_least=1))
    subject = look_at(build_matcher(runs.KINDS["vse++"], tokenizer).eval(), collection)
    evaluation = subject.evaluate()
    scenes = [captioned(4, i) for i in range(60)]
    marked = 0
    for query in find_answers(subject, evaluation, "t2i", list(range(0, 300, 7)), 30):
        owner, number = divmod(query.position, 5)
        statement = scenes[owner].captions[number].statement
        for answer in query.answers:
            assert answer.also == (answer.position != owner and holds(scenes[answer.position].scene, statement))
            marked += answer.also
    assert marked > 0
