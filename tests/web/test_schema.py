"""The OpenAPI document: whole, and true whatever is sent."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks

from diptych.web.app import create_app
from diptych.web.middleware import wrong_tokens
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import camp_folder, own_folders, vse_folder
from tests.web.serving import TOKEN, client, small_index

__all__ = ["camp_folder", "own_folders", "vse_folder"]
EXAMPLES = 40
OPERATIONS = {
    "POST /api/search", "GET /api/search", "POST /api/search/picture", "POST /api/uploads", "POST /api/rerank",
    "GET /api/explain", "GET /pictures/{id}", "GET /api/overview", "POST /api/embed", "POST /api/embed/picture",
    "POST /api/add", "POST /api/add/sentences", "DELETE /api/entries/{id}", "GET /health", "GET /ready", "GET /metrics",
    "GET /media/{id}",
    "GET /pictures/{id}/original", "POST /api/zip", "POST /api/paths", "POST /api/open-folder",
}  # fmt: skip
WITHOUT_INPUT = {"GET /api/overview", "GET /health", "GET /ready", "GET /metrics"}
ANSWERED = WITHOUT_INPUT | {
    "POST /api/search", "GET /api/explain", "GET /pictures/{id}", "POST /api/uploads", "POST /api/add",
    "POST /api/add/sentences",
}  # fmt: skip
SORTS = ["date", "-date", "stars", "-path", "none of them"]
FILTERS = [
    "stars>=2",
    "date>=2024-01-01",
    "date=2024",
    "album=holiday",
    "album~h*",
    "path~*.png",
    "kind=picture",
    "x!=1",
]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, vse_folder: str, camp_folder: str) -> Iterator[FastAPI]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "home" / "cache"))
        index = small_index(tmp_path_factory.mktemp("fuzzed"), vse_folder)
    with index:
        app = create_app(ServerSettings(token=TOKEN, hosts=("testserver",), rerank=camp_folder), index)
        app.state.service.warm()
        yield app
        app.state.service.close()


def test_everything_is_described(app: FastAPI) -> None:
    document = client(app).get("/openapi.json").json()
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations.keys() == OPERATIONS
    for name, operation in operations.items():
        assert operation["description"], name
        assert operation["responses"]["200"]["content"], name
        kinds = set(operation["responses"]["200"]["content"])
        if kinds == {"application/json"}:
            assert "$ref" in operation["responses"]["200"]["content"]["application/json"]["schema"], name
        assert operation["responses"].keys() >= {"401", "403", "421", "422", "503"}, name
        for status, response in operation["responses"].items():
            if status >= "400":
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}, (name, status)
        assert ("security" in operation) == ("/api/add" in name or "DELETE" in name), name


def bent(case: Any, draw: Any, ids: list[str], files: list[bytes]) -> None:
    """Now and then something that leads further in: an id that there is, a picture, a filter that means something."""
    for part in (case.path_parameters, case.query):
        if part and "id" in part and draw(st.booleans()):
            part["id"] = draw(st.sampled_from(ids))
    if case.query and "where" in case.query and draw(st.booleans()):
        case.query["where"] = draw(st.lists(st.sampled_from(FILTERS), max_size=3))
    for part in (case.query, case.body):
        if isinstance(part, dict) and "sort" in part and draw(st.booleans()):
            part["sort"] = draw(st.sampled_from(SORTS))
    if not isinstance(case.body, dict):
        return
    if "file" in case.body and draw(st.booleans()):
        one = draw(st.sampled_from(files))
        case.body["file"] = [one] if isinstance(case.body["file"], list) else one
    if isinstance(case.body.get("ids"), list) and draw(st.booleans()):
        case.body["ids"] = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3))
    if isinstance(case.body.get("where"), list) and draw(st.booleans()):
        case.body["where"] = draw(st.lists(st.sampled_from(FILTERS), max_size=3))
    terms = case.body.get("terms")
    if isinstance(terms, list) and draw(st.booleans()):
        own: list[Any] = [{"text": "a dog"}, {"id": ids[0], "weight": -0.5}, {"id": ids[-1]}, {"text": "\x00"}]
        case.body["terms"] = draw(st.lists(st.sampled_from(own), max_size=3))


@pytest.fixture(autouse=True)
def _answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of wrong tokens come from one client here: each would be answered after eight seconds."""
    monkeypatch.setattr(wrong_tokens, "FREE", 10**9)


@pytest.mark.parametrize(
    ("operation", "mode"),
    [(operation, "as described") for operation in sorted(OPERATIONS)]
    + [(operation, "not as described") for operation in sorted(OPERATIONS - WITHOUT_INPUT)],
)
def test_nothing_breaks_it(app: FastAPI, operation: str, mode: str) -> None:
    """No 5xx, and every answer as the document says it, for requests that fit the document and that do not."""
    load_all_checks()
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    method, path = operation.split()
    described = schema[path][method]
    web = client(app, TOKEN)
    results = web.post("/api/search", json={"terms": [{"text": "a dog"}], "top": 3}).json()["results"]
    sentence = web.get("/api/search", params={"q": "a dog", "kind": "sentence"}).json()["results"][0]["id"]
    ids = [*(result["id"] for result in results), sentence, "upload-none", "none"]
    data = io.BytesIO()
    picture().save(data, "PNG")
    files = [data.getvalue(), data.getvalue()[:100], b"", b"GIF89a"]
    # A request can fit the document and still mean nothing, such as a file that is no picture.
    left_out: list[Any] = CHECKS.get_by_names(
        ["positive_data_acceptance", "negative_data_rejection", "ensure_resource_availability"]
    )
    kind = schemathesis.GenerationMode.POSITIVE if mode == "as described" else schemathesis.GenerationMode.NEGATIVE
    strategy = described.as_strategy(generation_mode=kind)
    statuses = set()

    @seed(0)
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(drawn: st.DataObject) -> None:
        case = drawn.draw(strategy)
        if mode == "as described":
            bent(case, drawn.draw, ids, files)
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        assert response.status_code != 401 or mode != "as described"
        case.validate_response(response, excluded_checks=left_out)
        statuses.add(response.status_code)

    run()
    assert statuses
    if mode == "as described" and operation in ANSWERED:  # in more ways than with a refusal
        assert 200 in statuses
