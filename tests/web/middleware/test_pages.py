import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.web.models import own_folders, unchanged_index, vse_folder
from tests.web.serving import TOKEN, client

__all__ = ["own_folders", "unchanged_index", "vse_folder"]
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def app(unchanged_index: Index) -> FastAPI:
    return create_app(ServerSettings(token=TOKEN, max_upload=1000), unchanged_index)


@pytest.fixture
def web(app: FastAPI) -> TestClient:
    return client(app)


@pytest.mark.parametrize(
    ("method", "address", "options", "status", "said"),
    [
        ("GET", "/no/such/place", {}, 404, "There is nothing at this address."),
        ("PUT", "/", {}, 405, "There is nothing at this address."),
        ("GET", "/pictures/none/original", {}, 404, "not in the index any more"),
        ("POST", "/api/zip", {"data": {}}, 422, "Nothing was chosen."),
        ("POST", "/", {"files": {"file": b"x" * 100_000}}, 413, "larger than this server takes"),
        ("GET", "/", {"headers": {**BROWSER, "Host": "evil.example"}}, 421, "not known by this name"),
    ],
)
def test_a_person_sees_an_error_as_a_page(
    web: TestClient, method: str, address: str, options: dict[str, object], status: int, said: str
) -> None:
    answer = web.request(method, address, **{"headers": BROWSER, **options})  # type: ignore[arg-type]
    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert said in answer.text
    assert 'href="/"' in answer.text
    assert "{" not in answer.text


@pytest.mark.parametrize("headers", [{"Accept": "*/*"}, {**BROWSER, "Sec-Fetch-Mode": "cors"}])
def test_a_program_sees_it_as_before(web: TestClient, headers: dict[str, str]) -> None:
    assert web.get("/no/such/place", headers=headers).json() == {"error": "there is nothing at this address"}


def test_the_interface_answers_in_json_alone(web: TestClient) -> None:
    assert "error" in web.get("/api/search", headers=BROWSER).json()


def test_a_fault_of_the_server_is_a_page_too(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("a secret at /home/someone")

    monkeypatch.setattr(app.state.service, "overview", broken)
    web = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    answer = web.get("/", headers=BROWSER)
    assert answer.status_code == 500
    assert "Something went wrong in the server." in answer.text
    assert "secret" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "error" in web.get("/").json()
