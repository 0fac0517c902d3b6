"""What there is to search: counts follow every change, columns those made here, and others after a while."""

import pytest

from diptych.search.index import Index
from diptych.search.stores.sqlite_store import SqliteStore
from diptych.web.service import holdings
from diptych.web.service.holdings import Holdings
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import index, own_folders, vse_folder

__all__ = ["index", "own_folders", "vse_folder"]


def test_columns_are_not_looked_for_at_every_change(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    stamps = SqliteStore.stamps
    held = Holdings(index, ServerSettings())
    before = held.overview()
    monkeypatch.setattr(SqliteStore, "stamps", lambda store: looks.append(1) or stamps(store))  # type: ignore[func-returns-value]
    with Index.open(index.store.address, device="cpu") as other:
        other.add(pictures={"new": picture(40, 30, seed=77)}, metadata={"new": {"mood": "calm"}})
    now = held.overview()
    assert now["entries"] == before["entries"] + 1
    assert now["columns"] == before["columns"]
    assert not looks
    held.changed()  # as after what is added by this server
    assert held.overview()["columns"] == sorted([*before["columns"], "mood"])


def test_columns_that_others_add_are_found_after_a_while(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "COLUMNS_AGAIN", -1.0)
    held = Holdings(index, ServerSettings())
    before = held.overview()["columns"]
    with Index.open(index.store.address, device="cpu") as other:
        other.add(pictures={"new": picture(40, 30, seed=77)}, metadata={"new": {"mood": "calm"}})
    assert held.overview()["columns"] == sorted([*before, "mood"])
