"""Clients of the API over a small index, and what most of its tests ask."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.web.models import camp_folder, index, own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["camp_folder", "index", "own_folders", "unchanged_index", "vse_folder"]


@pytest.fixture
def app(index: Index, camp_folder: str) -> Iterator[FastAPI]:
    app = create_app(ServerSettings(token=TOKEN, rerank=camp_folder, credits="by nobody"), index)
    app.state.service.warm()
    yield app
    app.state.service.close()


@pytest.fixture
def web(app: FastAPI) -> TestClient:
    return client(app)


@pytest.fixture(scope="module")
def steady(unchanged_index: Index, camp_folder: str) -> Iterator[TestClient]:
    """For requests that change nothing."""
    app = create_app(ServerSettings(token=TOKEN, rerank=camp_folder), unchanged_index)
    yield client(app)
    app.state.service.close()


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Where the pictures of the index are."""
    return tmp_path / "pictures" / "album"


def searched(web: TestClient, **asked: Any) -> dict[str, Any]:
    answer = web.post("/api/search", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def id_of(web: TestClient, name: str) -> str:
    results = searched(web, terms=[{"text": "a dog"}], top=100)["results"]
    return next(str(result["id"]) for result in results if result["path"] == name)
