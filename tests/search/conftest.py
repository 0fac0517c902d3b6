from pathlib import Path

import pytest

from tests.search import tiny
from tests.search.stores.backends import backend, milvus_port, qdrant_port

__all__ = ["backend", "milvus_port", "qdrant_port"]  # fixtures of the stores' tests


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own index or cache."""
    home = tmp_path_factory.getbasetemp() / "home"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))


@pytest.fixture(scope="session")
def vse_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.save_vse(tmp_path_factory.mktemp("models") / "vse")


@pytest.fixture(scope="session")
def dive_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny.save_dive(tmp_path_factory.mktemp("models") / "dive")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return tiny.fill(tmp_path / "pictures", 6)
