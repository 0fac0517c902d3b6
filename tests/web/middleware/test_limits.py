"""Real sockets: what is too large or too slow is refused while it is on its way."""

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from diptych.search.index import Index
from diptych.web.middleware import limits
from diptych.web.settings import ServerSettings
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import TOKEN, serving

__all__ = ["index", "own_folders", "vse_folder"]
MOST = 50_000


def connected(address: str) -> socket.socket:
    place = urlsplit(address)
    assert place.hostname is not None
    return socket.create_connection((place.hostname, place.port or 80), timeout=20)


def heads(path: str, *more: str, kind: str = "multipart/form-data; boundary=b") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *more, "", ""]
    return "\r\n".join(lines).encode()


def answer(connection: socket.socket) -> tuple[int, str]:
    """The status, and the sentence of the body."""
    data = b""
    while part := connection.recv(65536):
        data += part
        head, _, body = data.partition(b"\r\n\r\n")
        if body.endswith(b"}"):
            break
    return int(head.split()[1]), json.loads(body)["error"]


def test_what_says_it_is_too_large_is_not_read(index: Index) -> None:
    with serving(index, ServerSettings(token=TOKEN, max_upload=MOST)) as address:
        for path in ("/api/uploads", "/api/search/picture", "/api/embed/picture"):
            with connected(address) as connection:
                connection.sendall(heads(path, "Content-Length: 99999999"))  # and nothing of it
                assert answer(connection) == (413, "the request is larger than the 115,536 bytes that are taken")


def test_what_does_not_say_how_large_it_is_is_counted(index: Index) -> None:
    with serving(index, ServerSettings(token=TOKEN, max_upload=MOST)) as address, connected(address) as connection:
        connection.sendall(heads("/api/uploads", "Transfer-Encoding: chunked"))
        start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        connection.sendall(b"%x\r\n%s\r\n" % (len(start), start))
        without_end = (b"2710\r\n" + b"x" * 10_000 + b"\r\n") * 10_000
        with pytest.raises(ConnectionError):  # the server hangs up; buffers on the way may hold some megabytes
            connection.sendall(without_end)


def test_json_has_a_limit_of_its_own(index: Index) -> None:
    with serving(index) as address, connected(address) as connection:
        connection.sendall(heads("/api/search", f"Content-Length: {limits.JSON_BYTES + 1}", kind="application/json"))
        assert answer(connection)[0] == 413


def test_what_comes_too_slowly_is_given_up(index: Index) -> None:
    with serving(index, ServerSettings(token=TOKEN, timeout=0.5)) as address, connected(address) as connection:
        connection.sendall(heads("/api/uploads", "Content-Length: 1000") + b"--b\r\n")
        assert answer(connection) == (408, "the request was not sent within 0.5 seconds")


def test_only_some_uploads_are_read_at_a_time(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_AT_ONCE", 1)
    with serving(index, ServerSettings(token=TOKEN, timeout=3)) as address:
        with connected(address) as first, connected(address) as second, connected(address) as third:
            first.sendall(heads("/api/uploads", "Content-Length: 1000") + b"--b\r\n")
            second.sendall(heads("/api/uploads", "Content-Length: 1000"))
            third.sendall(heads("/api/uploads", "Content-Length: 1000"))
            # Which of the three is read is the server's choice; the other two are told to come back.
            second_answer, third_answer = answer(second), answer(third)
        assert 503 in (second_answer[0], third_answer[0])


def test_an_unauthorised_upload_is_refused_at_its_head(index: Index) -> None:
    with serving(index) as address, connected(address) as connection:
        connection.sendall(heads("/api/add", "Content-Length: 1000"))
        assert answer(connection)[0] == 401


def test_many_pixels_are_refused(index: Index) -> None:
    import httpx

    from tests.web.service.test_pictures import huge_png

    with serving(index) as address:
        files = {"file": ("x.png", huge_png(30_000, 30_000))}
        for path in ("/api/uploads", "/api/search/picture", "/api/embed/picture"):
            refused = httpx.post(address + path, files=files)
            assert refused.status_code == 413
            assert "pixels" in refused.json()["error"]
        before = len(index)
        refused = httpx.post(address + "/api/add", files=files, headers={"Authorization": f"Bearer {TOKEN}"})
        assert refused.status_code == 413
        assert len(index) == before
        assert not Path(index.store.address.removesuffix(".db") + ".uploads").exists()
