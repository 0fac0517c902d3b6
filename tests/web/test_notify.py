import socket
from pathlib import Path

import pytest

from diptych.web.notify import notify


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_service_manager_is_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tmp_path / "socket") if kind == "path" else f"@{tmp_path.name}-{tmp_path.parent.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name if kind == "path" else "\0" + name[1:])
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1")
        manager.settimeout(10)
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", [None, "", "/no/such/socket", "elsewhere"])
def test_where_nobody_listens_nothing_happens(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if name is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", name)
    notify("READY=1")
