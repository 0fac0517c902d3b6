from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from diptych.common.errors import DiptychError
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings, address_of, is_loopback, uploads_beside
from tests.web.models import own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["own_folders", "unchanged_index", "vse_folder"]
CHANGES = [("POST", "/api/add"), ("POST", "/api/add/sentences"), ("DELETE", "/api/entries/x")]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tokens, of which there are many here, are not slowed down."""
    monkeypatch.setattr("diptych.web.middleware.wrong_tokens.FREE", 1000)


@pytest.fixture(scope="module")
def app(unchanged_index: Index) -> Iterator[FastAPI]:
    app = create_app(ServerSettings(token=TOKEN, hosts=("Proxy.example",)), unchanged_index)
    yield app
    app.state.service.close()


@pytest.fixture
def outside(unchanged_index: Index) -> Iterator[TestClient]:
    """A server that others can reach."""
    app = create_app(ServerSettings(host="0.0.0.0", token=TOKEN), unchanged_index)
    yield client(app, host="pictures.example")
    app.state.service.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", "é"])
def test_changes_need_the_token(app: FastAPI, method: str, path: str, token: str) -> None:
    refused = client(app).request(method, path, headers={b"Authorization": f"Bearer {token}".encode()})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "token" in refused.json()["error"]
    assert client(app, TOKEN).request(method, path).status_code in (404, 422)


@pytest.mark.parametrize("scheme", ["Basic", "", "Token"])
def test_only_a_bearer_has_a_token(app: FastAPI, scheme: str) -> None:
    assert client(app).delete("/api/entries/x", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 401


def test_on_this_machine_reading_needs_none(app: FastAPI) -> None:
    assert client(app).get("/api/search", params={"q": "a dog"}).status_code == 200
    assert client(app).get("/metrics").status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/search?q=dog", "/metrics", "/openapi.json", "/static/page.css", "/none"])
def test_elsewhere_everything_needs_it(outside: TestClient, path: str) -> None:
    assert outside.get(path).status_code == 401
    assert outside.get(path, headers=bearer("wrong-token")).status_code == 401
    assert outside.get(path, headers=bearer(TOKEN)).status_code in (200, 404)


def test_health_tells_nothing_and_needs_nothing(outside: TestClient) -> None:
    assert outside.get("/health").json().keys() == {"status", "version"}


def test_the_page_takes_the_token_from_its_address(outside: TestClient) -> None:
    assert "token" in outside.get("/", headers={"Accept": "text/html"}).text
    assert outside.get("/", params={"token": "wrong-token"}, follow_redirects=False).status_code == 401
    welcome = outside.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    cookie = welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert outside.get("/api/search", params={"q": "a dog"}).status_code == 200


def test_a_cookie_changes_something_only_from_the_page_itself(outside: TestClient) -> None:
    outside.get("/", params={"token": TOKEN})
    sentences = {"sentences": {"x": "a dog"}}
    for headers, status in [
        ({}, 401),
        ({"Origin": "http://pictures.example"}, 200),
        ({"Origin": "http://pictures.example:81"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ]:
        assert outside.post("/api/add/sentences", json=sentences, headers=headers).status_code == status, headers


def test_a_cookie_of_another_server_is_none(outside: TestClient) -> None:
    outside.cookies.set("diptych-8000", "0" * 64)
    assert outside.get("/").status_code == 401


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8000", True),
        ("localhost:8000", True),
        ("LOCALHOST", True),
        ("[::1]:8000", True),
        ("photos.localhost", True),
        ("proxy.example", True),
        ("proxy.example:443", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8000", False),
        ("evil.example@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("192.168.0.7", False),
        ("127.0.0.1:x", False),
        ("", False),
    ],
)
def test_a_name_that_leads_here_from_outside_is_refused(app: FastAPI, host: str, known: bool) -> None:
    answer = client(app).get("/health", headers={"Host": host})
    assert answer.status_code == (200 if known else 421)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
    ],
)
def test_pages_of_other_sites_cannot_have_work_done(app: FastAPI, headers: dict[str, str], status: int) -> None:
    answer = client(app).get("/api/search", params={"q": "a dog"}, headers=headers)
    assert answer.status_code == status


def test_a_link_to_the_page_may_be_followed(app: FastAPI) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client(app).get("/", headers=link).status_code == 200
    assert client(app).get("/", headers={**link, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert client(app).post("/", headers=link).status_code == 403


@pytest.mark.parametrize("path", ["/", "/health", "/none", "/api/search?q=dog", "/api/search"])
def test_every_answer_keeps_other_sites_out(app: FastAPI, path: str) -> None:
    headers = client(app).get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_no_page_loads_its_scripts_from_elsewhere(app: FastAPI) -> None:
    assert [client(app).get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


@pytest.mark.parametrize("token", ["", "short", "with space in it", "ümläute-sind-keine", "x" * 300])
def test_a_token_is_plain(token: str) -> None:
    with pytest.raises(DiptychError, match="token"):
        ServerSettings(token=token)


def test_tokens_are_made_and_not_shown() -> None:
    one, other = ServerSettings(), ServerSettings()
    assert one.token != other.token
    assert len(one.token) >= 32
    assert one.token not in repr(one)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.2", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_which_addresses_are_this_machines_own(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    assert replace(ServerSettings(), host=host).loopback is loopback


def test_where_things_are() -> None:
    assert address_of(ServerSettings(host="::1", port=81)) == "http://[::1]:81/"
    assert address_of(ServerSettings(host="0.0.0.0", port=81)) == "http://127.0.0.1:81/"
    assert uploads_beside("/data/photos.db") == Path("/data/photos.uploads")
    assert uploads_beside("milvus://db:1/x").name == "uploads"
