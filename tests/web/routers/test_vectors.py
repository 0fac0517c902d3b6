from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.search import tiny
from tests.web.models import camp_folder, index, own_folders, vse_folder
from tests.web.routers.asking import album, app, searched, web
from tests.web.serving import TOKEN, client

__all__ = ["album", "app", "camp_folder", "index", "own_folders", "vse_folder", "web"]


def test_vectors_are_the_embedders(web: TestClient, index: Index, album: Path) -> None:
    texts = ["two dog", "a red boat"]
    told = web.post("/api/embed", json={"sentences": texts}).json()["vectors"]
    np.testing.assert_allclose(told, index.embedder.embed_texts(texts)[:, 0], atol=1e-6)
    told = web.post("/api/embed/picture", files={"file": (album / "002.png").read_bytes()}).json()["vectors"]
    np.testing.assert_allclose(told, index.embedder.embed_pictures([album / "002.png"])[:, 0], atol=1e-6)
    assert web.post("/api/embed", json={"sentences": ["a"] * 99}).status_code == 422


def test_models_that_keep_sets(tmp_path: Path) -> None:
    folder = tiny.save_dive(tmp_path / "dive")
    with Index.create(tmp_path / "sets.db", folder, device="cpu") as index:
        index.sync(tiny.fill(tmp_path / "pictures", 4))
        web = client(create_app(ServerSettings(token=TOKEN), index))
        told = web.post("/api/embed", json={"sentences": ["two dog"]}).json()["vectors"]
        np.testing.assert_allclose(told, index.embedder.embed_texts(["two dog"]), atol=1e-6)
        assert len(searched(web, terms=[{"text": "two dog"}, {"text": "snow", "weight": -0.5}])["results"]) == 4
