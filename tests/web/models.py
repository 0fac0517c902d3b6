"""The models of these tests, made once, and an index for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diptych.search.index import Index
from tests.search import tiny
from tests.search.conftest import own_folders, vse_folder
from tests.web.serving import small_index

__all__ = ["camp_folder", "index", "own_folders", "unchanged_index", "vse_folder"]


@pytest.fixture(scope="session")
def camp_folder(tmp_path_factory: pytest.TempPathFactory, vse_folder: str) -> str:
    """A re-ranking model over the searching model's own features."""
    return tiny.save_camp(tmp_path_factory.mktemp("web-models") / "camp", vse_folder)


@pytest.fixture(scope="session")
def unchanged_index(tmp_path_factory: pytest.TempPathFactory, vse_folder: str) -> Iterator[Index]:
    """One for all tests that change nothing of it but sentences of the name x."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "home" / "cache"))
        made = small_index(tmp_path_factory.mktemp("web-index"), vse_folder)
    with made:
        yield made


@pytest.fixture
def index(tmp_path: Path, vse_folder: str) -> Iterator[Index]:
    with small_index(tmp_path, vse_folder) as made:
        yield made
