"""Exact search over vectors in memory, beside slow loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diptych.search.stores import vectors as vectors_module
from diptych.search.stores.approximate import recall_of
from diptych.search.stores.store import Layout
from diptych.search.stores.vectors import BestRows, Vectors, aligned_similarities, similarities, top_of
from tests.search.stores.store_cases import random_vectors, score


@pytest.mark.parametrize(
    ("queries", "length", "top"), [(1, 1, 1), (2, 31, 5), (3, 1000, 4), (1, 4099, 10), (2, 4099, 10), (2, 700, 900)]
)
@pytest.mark.parametrize("by_entry", [False, True])
def test_the_largest_are_those_of_a_sort(queries: int, length: int, top: int, by_entry: bool) -> None:
    # Few different values, so that there are many equals.
    scores = torch.randint(0, 50, (queries, length)).float()
    if by_entry:
        scores = scores.T.contiguous().T
    values, columns = top_of(scores, top)
    assert torch.equal(values, scores.sort(1, descending=True).values[:, :top])
    assert torch.equal(scores.gather(1, columns), values)
    assert all(len(set(row)) == len(row) for row in columns.tolist())


@pytest.mark.parametrize("few", [0, 1 << 20])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_similarities_are_the_slow_loop(size: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "FEW_PRODUCTS", few)
    rng = np.random.default_rng(0)
    queries, others = random_vectors(rng, 3, size, 7), random_vectors(rng, 5, size, 7)
    layout = Layout(7, size, 9.0)
    wanted = [[score(q, e, 9.0) for e in others] for q in queries]
    assert similarities(queries, others, layout).numpy() == pytest.approx(np.array(wanted), abs=2e-6)
    assert similarities(queries[:1], others, layout).numpy() == pytest.approx(np.array(wanted[:1]), abs=2e-6)
    aligned = aligned_similarities(queries, np.stack([others] * 3), layout)
    assert aligned.numpy() == pytest.approx(np.array(wanted), abs=2e-6)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_history_gives_the_slow_search(data: st.DataObject) -> None:
    """Parts come and go in any way; searches over all rows, some rows and later rows are those of a loop."""
    size = data.draw(st.sampled_from([1, 3]))
    layout, rng = Layout(4, size), np.random.default_rng(data.draw(st.integers(0, 9)))
    held, model, number = Vectors.empty(layout), dict[int, np.ndarray](), 0
    for _ in range(data.draw(st.integers(0, 6))):
        more = random_vectors(rng, data.draw(st.integers(0, 9)), size, 4)
        ids = np.arange(number, number + 2 * len(more), 2)
        number += 2 * len(more)
        held = held.append(ids, more)
        model.update(zip(ids.tolist(), more, strict=True))
        gone = data.draw(st.lists(st.integers(0, 40), max_size=4))
        held = held.without(np.array(gone, np.int64))
        for i in gone:
            model.pop(i, None)
    assert held.alive == len(model)
    queries = random_vectors(rng, 2, size, 4)
    some = sorted(data.draw(st.sets(st.integers(0, 40))))
    first = data.draw(st.integers(0, 12))
    top = data.draw(st.integers(1, 20))
    cases = [
        (held.search(queries, top), model.keys()),
        (held.search(queries, top, held.rows_of(np.array(some, np.int64))), model.keys() & set(some)),
        (held.search(queries, top, first=first), model.keys() & set(held.ids[first:].tolist())),
    ]
    for found, allowed in cases:
        for i, query in enumerate(queries):
            wanted = sorted((score(query, model[j], layout.alpha) for j in allowed), reverse=True)[:top]
            real = found.scores[i] > -torch.inf
            assert found.scores[i][real].tolist() == pytest.approx(wanted, abs=2e-6)
            for row, s in zip(found.rows[i][real].tolist(), found.scores[i][real].tolist(), strict=True):
                assert s == pytest.approx(score(query, model[int(held.ids[row])], layout.alpha), abs=2e-6)


def test_small_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    held = Vectors.empty(Layout(6)).append(np.arange(5000), random_vectors(rng, 5000, 1, 6))
    queries = random_vectors(rng, 7, 1, 6)
    whole = held.search(queries, 9)
    held = replace(held, work=1)
    monkeypatch.setattr(vectors_module, "QUERIES_AT_ONCE", 2)
    parts = held.search(queries, 9)
    assert torch.equal(parts.rows, whole.rows)
    assert parts.scores.numpy() == pytest.approx(whole.scores.numpy(), abs=1e-6)


def test_joined_parts_stay_few() -> None:
    held = Vectors.empty(Layout(2))
    for i in range(200):
        held = held.append(np.array([i]), random_vectors(np.random.default_rng(i), 1, 1, 2))
    assert len(held.parts) < 10
    assert held.ids.tolist() == list(range(200))


def test_recall_counts_equals_as_found() -> None:
    exact = BestRows(
        torch.tensor([[3.0, 2.0, 2.0], [1.0, -torch.inf, -torch.inf]]), torch.zeros(2, 3, dtype=torch.int64)
    )
    found = BestRows(torch.tensor([[3.0, 2.0, 1.0], [0.5, 0.4, 0.3]]), torch.ones(2, 3, dtype=torch.int64))
    assert recall_of(exact, exact) == 1
    assert recall_of(found, exact) == 0.5
    assert recall_of(BestRows.merged([], 3, 2), BestRows.merged([], 3, 2)) == 1
