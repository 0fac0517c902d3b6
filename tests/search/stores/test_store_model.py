"""Random operations on a store, beside a dictionary that does the same."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from diptych.search.stores import sqlite_vectors
from diptych.search.stores.store import Condition, Entry, Layout, Stamp
from tests.search.stores.backends import Backend
from tests.search.stores.store_cases import assert_same_entry, entry, random_vectors, slow_search

KEYS = st.sampled_from([f"{folder}/{name}" for folder in ("a", "b*", "ü") for name in "xyz"])
PREFIXES = st.sampled_from(["", "a", "b*/", "ü/x", "c"])


class StoreBesideADictionary(RuleBasedStateMachine):
    """Two that have one store open, a writer and a reader, always agree with a dictionary."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.backend = backend

    @initialize(set_size=st.sampled_from([1, 3]))
    def start(self, set_size: int) -> None:
        self.layout = Layout(5, set_size)
        self.writer = self.backend.fresh(self.layout)
        self.address = self.writer.address
        self.reader = self.backend.open(self.address)
        self.model: dict[str, Entry] = {}

    def teardown(self) -> None:
        self.backend.close()

    @rule(
        keys=st.lists(KEYS, unique=True, max_size=4),
        seed=st.integers(0, 5),
        year=st.one_of(st.none(), st.integers(0, 2), st.sampled_from(["x", "y"])),
        cells=st.booleans(),
    )
    def add(self, keys: list[str], seed: int, year: int | str | None, cells: bool) -> None:
        rng = np.random.default_rng(seed)
        made = [
            entry(
                key,
                random_vectors(rng, self.layout.set_size, 5),
                kind="picture" if seed % 2 else "sentence",
                changed=seed,
                metadata={} if year is None else {"year": year},
                locals=rng.standard_normal((2, 3)).astype(np.float16) if cells else None,
            )
            for key in keys
        ]
        self.writer.add(made)
        self.model.update({e.key: e for e in made})

    @rule(keys=st.lists(KEYS, unique=True, max_size=4))
    def delete(self, keys: list[str]) -> None:
        assert self.writer.delete(keys) == sum(self.model.pop(key, None) is not None for key in keys)

    @rule(old=KEYS, new=KEYS)
    def rename(self, old: str, new: str) -> None:
        if old not in self.model:
            return
        stamp = Stamp(new, 3, 4, "moved")
        self.writer.rename(old, stamp)
        e = self.model.pop(old)
        self.model[new] = Entry(new, e.kind, e.vectors, stamp, e.text, e.metadata, e.locals)

    @rule()
    def prepare(self) -> None:
        self.writer.prepare()

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self.writer = self.backend.open(self.address)

    @rule(
        seed=st.integers(0, 20),
        top=st.integers(1, 12),
        where=st.lists(
            st.sampled_from(
                [
                    Condition("path", "matches", "a/*"),
                    Condition("path", "matches", "b[*]/?"),
                    Condition("kind", "=", "picture"),
                    Condition("year", ">", 0),
                    Condition("year", "!=", "x"),
                    Condition("date", "<=", 2e-9),
                ]
            ),
            max_size=2,
        ),
    )
    def search(self, seed: int, top: int, where: list[Condition]) -> None:
        query = random_vectors(np.random.default_rng(100 + seed), 1, self.layout.set_size, 5)
        wanted = slow_search(
            list(self.model.values()), query[0], top, self.layout, lambda e: all(fits(c, e) for c in where)
        )
        for store in (self.reader, self.writer):
            hits = store.search(query, top, where).hits[0]
            assert [h.score for h in hits] == pytest.approx([s for _, s in wanted], abs=2e-6)
            assert all(h.score == pytest.approx(dict(all_scores(self, query))[h.key], abs=2e-6) for h in hits)

    @rule(prefix=PREFIXES)
    def stamps(self, prefix: str) -> None:
        wanted = [self.model[key].stamp for key in sorted(self.model) if key.startswith(prefix)]
        assert list(self.reader.stamps(prefix)) == wanted

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "reader"):
            return
        assert self.reader.count() == len(self.model)
        for found, wanted in zip(self.reader.get(list(self.model)), self.model.values(), strict=True):
            assert_same_entry(found, wanted)


def all_scores(machine: StoreBesideADictionary, query: np.ndarray) -> list[tuple[str, float]]:
    return slow_search(list(machine.model.values()), query[0], 99, machine.layout, lambda e: True)


def fits(condition: Condition, e: Entry) -> bool:
    year = e.metadata.get("year")
    match condition.field, condition.operator:
        case "path", _:
            return e.key.startswith("a/" if condition.value == "a/*" else "b*/")
        case "kind", _:
            return e.kind == "picture"
        case "year", ">":
            return isinstance(year, int) and year > 0
        case "year", _:
            return year != "x"
        case _:
            return e.stamp.changed <= 2


@pytest.fixture(autouse=True)
def always_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_vectors, "CACHE_FROM", 1)


# A server takes its time over every step, Milvus most of all.
EXAMPLES = {"sqlite": 20, "qdrant": 6, "milvus": 2}


def test_a_store_beside_a_dictionary(backend: Backend) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: StoreBesideADictionary(backend),
        settings=settings(
            max_examples=EXAMPLES[backend.kind],
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
