from fastapi.testclient import TestClient

from tests.web.models import camp_folder, index, own_folders, unchanged_index, vse_folder
from tests.web.routers.asking import app, steady, web

__all__ = ["app", "camp_folder", "index", "own_folders", "steady", "unchanged_index", "vse_folder", "web"]


def test_addresses_that_are_none(steady: TestClient) -> None:
    assert steady.get("/api/none").json() == {"error": "there is nothing at this address"}
    assert (steady.put("/api/search").status_code, steady.put("/api/search").json().keys()) == (405, {"error"})
    assert steady.get("/static/../app.py").status_code == 404
    assert steady.get("/static/%2e%2e/app.py").status_code == 404


def test_it_tells_of_itself(web: TestClient) -> None:
    assert web.get("/api/overview").json() == {
        "entries": 11, "pictures": 8, "sentences": 3, "model": "vse", "reranker": "camp",
        "columns": ["album", "bytes", "height", "stars", "width"], "credits": "by nobody",
    }  # fmt: skip
    assert web.get("/health").json()["status"] == "ok"


def test_metrics(web: TestClient) -> None:
    for sentence in ("a dog", "a boat", "snow", "snow"):  # the last is known already
        web.get("/api/search", params={"q": sentence})
    web.get("/api/search")
    web.get("/pictures/none")
    web.get("/no/such/place")
    lines = web.get("/metrics").text.splitlines()
    assert 'diptych_requests_total{method="GET",route="/api/search",status="200"} 4.0' in lines
    assert 'diptych_requests_total{method="GET",route="/api/search",status="422"} 1.0' in lines
    assert 'diptych_requests_total{method="GET",route="/pictures/{id}",status="404"} 1.0' in lines
    assert 'diptych_requests_total{method="GET",route="other",status="404"} 1.0' in lines
    assert 'diptych_request_seconds_count{route="/api/search"} 5.0' in lines
    assert 'diptych_batch_size_sum{lane="search"} 3.0' in lines
    assert 'diptych_index_entries{kind="picture"} 8.0' in lines
    assert 'diptych_waiting{lane="explain"} 0.0' in lines
    assert 'diptych_refused_total{lane="search"} 0.0' in lines
    assert 'diptych_searches_total{outcome="answered"} 3.0' in lines
    assert 'diptych_searches_total{outcome="remembered"} 1.0' in lines
    assert 'diptych_stage_seconds_count{stage="retrieve"} 3.0' in lines
    assert "diptych_workers 1.0" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)
