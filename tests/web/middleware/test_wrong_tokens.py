"""Guessing a token is slow, whoever has it is not, and nothing grows without end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.middleware import tallies, wrong_tokens
from diptych.web.middleware.tallies import MemoryTally, SharedTally
from diptych.web.middleware.wrong_tokens import FREE, LONGEST, MOST_HELD, WrongTokens, delay_after, network_of
from diptych.web.settings import ServerSettings
from tests.web.models import own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["own_folders", "unchanged_index", "vse_folder"]


class Waits:
    """In place of sleeping: how long each answer would have been held back. `gate` holds them for the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gate: asyncio.Event | None = None) -> None:
        self.seconds: list[float] = []

        async def sleep(seconds: float) -> None:
            self.seconds.append(seconds)
            if gate is not None and seconds:
                await gate.wait()

        monkeypatch.setattr(wrong_tokens.asyncio, "sleep", sleep)


@pytest.fixture
def app(unchanged_index: Index) -> Iterator[FastAPI]:
    app = create_app(ServerSettings(host="0.0.0.0", token=TOKEN), unchanged_index)
    yield app
    app.state.service.close()


def test_the_wait_doubles_up_to_a_bound() -> None:
    waits = [delay_after(count) for count in range(FREE + 40)]
    assert waits[: FREE + 1] == [0.0] * (FREE + 1)
    assert all(b == min(LONGEST, 2 * a) for a, b in zip(waits[FREE + 1 :], waits[FREE + 2 :], strict=False))
    assert waits[FREE + 1] > 0
    assert waits[-1] == delay_after(10**9) == LONGEST


@pytest.mark.parametrize("way", ["bearer", "address"])
def test_wrong_tokens_are_held_back_and_right_ones_never(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    waits, web = Waits(monkeypatch), client(app, host="pictures.example")
    for i in range(FREE + 3):
        if way == "bearer":
            refused = web.get("/api/search?q=dog", headers={"Authorization": f"Bearer guess-number-{i}"})
        else:
            refused = web.get(f"/?token=guess-number-{i}")
        assert refused.status_code == 401
    assert waits.seconds == [delay_after(i + 1) for i in range(FREE + 3)]
    right = web.get("/api/search?q=dog", headers={"Authorization": f"Bearer {TOKEN}"})
    assert right.status_code == 200
    assert len(waits.seconds) == FREE + 3


def test_no_token_and_an_old_cookie_are_no_guesses(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, web = Waits(monkeypatch), client(app, host="pictures.example")
    for headers in ({}, {"Cookie": "diptych-8000=of-yesterday"}, {"Authorization": "Bearer "}):
        assert web.get("/api/search?q=dog", headers=headers).status_code == 401
    assert waits.seconds == []


def test_guesses_in_parallel_are_told_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def guess() -> list[int | None]:
        gate = asyncio.Event()
        Waits(monkeypatch, gate)
        counter = WrongTokens(MemoryTally())
        for _ in range(FREE):
            await counter.answer("10.0.0.1")
        tasks = [asyncio.create_task(counter.answer("10.0.0.1")) for _ in range(MOST_HELD + 3)]
        other = asyncio.create_task(counter.answer("10.0.0.2"))
        done, held = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert len(held) == MOST_HELD
        assert await other is None
        answers = [task.result() for task in done]
        assert all(answer is not None and int(answer.headers["retry-after"]) >= 1 for answer in answers)
        gate.set()
        assert await asyncio.gather(*held) == [None] * MOST_HELD
        return [answer and answer.status_code for answer in answers]

    assert asyncio.run(guess()) == [429, 429, 429]


@pytest.mark.parametrize("kind", ["memory", "shared"])
def test_clients_are_forgotten_when_quiet_or_too_many(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "MOST_CLIENTS", 3)
    tally = MemoryTally() if kind == "memory" else SharedTally(tmp_path / "wrong.db")
    assert [tally.noted("a", now) for now in (0, 1, 2)] == [1, 2, 3]
    assert tally.noted("a", 3 + tallies.FORGET) == 1
    for i, name in enumerate("bcdefg"):
        tally.noted(name, 700 + i)
    assert len(tally) == 3
    assert [tally.noted(name, 710) for name in "ga"] == [2, 1]


def test_several_processes_count_together(tmp_path: Path) -> None:
    path = tmp_path / "wrong.db"
    one, other = SharedTally(path), SharedTally(path)
    assert [tally.noted("a", 1) for tally in (one, other, one)] == [1, 2, 3]
    path.write_bytes(b"no database")
    assert SharedTally.noted(other, "a", 2) > 1000  # what cannot be counted is held back for longest


def test_a_client_is_its_network() -> None:
    assert network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8:1:2:3::9") == network_of("2001:db8:1:2:ffff::1") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert len(network_of("x" * 10_000)) < 100
