from pathlib import Path

import pytest

from diptych.search.stores.address import default_index


def test_each_user_has_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_index() == tmp_path / "diptych" / "index.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_index() == Path("/home/someone/.local/share/diptych/index.db")
