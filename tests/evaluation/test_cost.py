"""What a query costs: counted operations are exact, and times are there; no test says how long anything takes."""

import pytest
import torch

from diptych.encoders.images import FeatureConfig
from diptych.encoders.texts import GRUConfig
from diptych.evaluation.cost import Cost, cost_table, reranked_cost, scoring_cost
from diptych.evaluation.encode import encode_collection
from diptych.evaluation.published import published
from diptych.matchers.base import Matcher
from diptych.matchers.catalog import MatcherConfig, build_matcher
from diptych.matchers.dive import DivEConfig
from diptych.matchers.vse import VSEConfig
from tests.evaluation import tiny
from tests.training import toy

DATA = toy.collection()
IMAGE, TEXT = FeatureConfig(feature_dim=8), GRUConfig(word_dim=6)


def matcher(config: MatcherConfig) -> Matcher:
    tokenizer = tiny.matcher().tokenizer
    return build_matcher(config, tokenizer).eval()


def test_a_set_of_four_costs_sixteen_times_one_vector() -> None:
    """DivE's supplement, B.1; and one vector of 16 times the width costs as much."""
    one = matcher(VSEConfig(dim=16, image=IMAGE, text=TEXT))
    sets = matcher(DivEConfig(dim=16, image=IMAGE, text=TEXT, heads=2, head_dim=4))
    wide = matcher(VSEConfig(dim=256, image=IMAGE, text=TEXT))
    costs = [scoring_cost(m, *encode_collection(m, DATA)).pair_operations for m in (one, sets, wide)]
    assert costs == [2 * 16, 16 * 2 * 16, 2 * 256]


def test_each_query_is_scored_with_every_picture_and_once_before(monkeypatch: pytest.MonkeyPatch) -> None:
    one = matcher(VSEConfig(dim=16, image=IMAGE, text=TEXT))
    images, texts = encode_collection(one, DATA)
    sizes: list[tuple[int, int]] = []
    score = one.score

    def counted(a: object, b: object) -> torch.Tensor:
        sizes.append((len(a), len(b)))  # type: ignore[arg-type]
        return score(a, b)  # type: ignore[arg-type]

    monkeypatch.setattr(one, "score", counted)
    cost = scoring_cost(one, images, texts, queries=3)
    assert sizes.count((len(images), 1)) == 3 + 2  # three that are timed, one to warm up, one to count operations
    assert sum(n * m for n, m in sizes if m > 1) == len(images) * len(texts)
    assert cost.query_seconds > 0
    assert cost.overall_seconds > 0


def test_two_stages_have_their_times_and_the_paper_stands_above() -> None:
    fast, slow = (matcher(VSEConfig(dim=d, image=IMAGE, text=TEXT)) for d in (16, 32))
    kept = encode_collection(fast, DATA), encode_collection(slow, DATA)
    cost = reranked_cost(fast, slow, *kept, depth=0.1, queries=2)
    assert cost.pair_operations is None
    assert min(cost.query_seconds, cost.overall_seconds) > 0
    table = cost_table(
        {"base": Cost(0.001, 2.0, 32.0), "two": cost}, published("camp/supplement-table-1"), len(DATA), 48
    )
    assert [row[0] for row in table.rows] == [
        "paper: Base Model (O(N^2 D))", "paper: CAMP (O(N^2 M D^2))", "paper: Rerank (top-10%) (time complexity: -)",
        "base", "two",
    ]  # fmt: skip
    assert table.rows[1][1:] == ("87.24", "263.497", None)
    assert table.rows[3][1:] == ("1.00", "2.000", "32")
    assert table.columns == ("method", "one query, ms", "all, s", "operations a pair")
    assert "another machine" in table.notes[0]
