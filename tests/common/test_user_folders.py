from pathlib import Path

import pytest

from diptych.common.user_folders import cache_folder, data_folder


@pytest.mark.parametrize(
    ("platform", "data", "cache"),
    [
        ("linux", ".local/share/diptych", ".cache/diptych"),
        ("darwin", "Library/Application Support/diptych", "Library/Caches/diptych"),
        ("win32", "AppData/Local/diptych", "AppData/Local/diptych/cache"),
    ],
)
def test_each_platform_has_its_own(platform: str, data: str, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert data_folder() == Path("/home/someone") / data
    assert cache_folder() == Path("/home/someone") / cache


@pytest.mark.parametrize(
    ("platform", "names"), [("linux", ("XDG_DATA_HOME", "XDG_CACHE_HOME")), ("win32", ("LOCALAPPDATA",))]
)
def test_the_environment_may_say_where(platform: str, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", platform)
    for name in names:
        monkeypatch.setenv(name, f"/else/{name}")
    assert data_folder().is_relative_to(f"/else/{names[0]}")
    assert cache_folder().is_relative_to(f"/else/{names[-1]}")
