import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from diptych.explain.explain import explain
from diptych.matchers.base import Matcher
from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import camp_folder, index, own_folders, vse_folder
from tests.web.routers.asking import album, app, id_of, searched, web
from tests.web.serving import TOKEN, client

__all__ = ["album", "app", "camp_folder", "index", "own_folders", "vse_folder", "web"]


def test_pictures_are_shown_in_some_sizes(web: TestClient, index: Index, album: Path) -> None:
    picture(1000, 500, seed=99).save(album / "big.jpg")
    index.sync(album.parent, what="both")
    id = id_of(web, "album/big.jpg")
    sizes = {}
    for size in ("160", "320", "640", "full"):
        answer = web.get(f"/pictures/{id}", params={"size": size})
        assert answer.headers["content-type"] == "image/jpeg"
        sizes[size] = Image.open(io.BytesIO(answer.content)).size
    assert sizes == {"160": (160, 80), "320": (320, 160), "640": (640, 320), "full": (1000, 500)}
    assert web.get(f"/pictures/{id}").content == web.get(f"/pictures/{id}", params={"size": "320"}).content
    assert web.get(f"/pictures/{id}", params={"size": "99999"}).status_code == 422


def test_a_changed_picture_is_shown_anew(web: TestClient, index: Index, album: Path) -> None:
    id = id_of(web, "album/003.png")
    before = web.get(f"/pictures/{id}").content
    picture(70, 30, seed=55).save(album / "003.png")
    index.sync(album.parent, what="both")
    assert web.get(f"/pictures/{id}").content != before


def test_only_what_is_in_the_index_is_shown(web: TestClient, app: FastAPI, index: Index, album: Path) -> None:
    ids = app.state.service.ids
    picture().save(album / "later.png")
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 404
    index.sync(album.parent, what="both")
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 200
    index.delete([str(album / "later.png")])
    assert web.get(f"/pictures/{ids.of(str(album / 'later.png'))}").status_code == 404
    assert web.get(f"/pictures/{ids.of(str(album.parent / 'words.txt') + '#1')}").status_code == 404


def test_links_out_of_the_folder_are_not_shown(web: TestClient, index: Index, album: Path, tmp_path: Path) -> None:
    picture(seed=66).save(tmp_path / "secret.png")
    (album / "link.png").symlink_to(tmp_path / "secret.png")
    index.sync(album.parent, what="both")  # which follows links to files
    id = id_of(web, "album/link.png")
    assert web.get(f"/pictures/{id}").status_code == 404
    assert web.get("/api/explain", params={"id": id, "sentence": "a dog"}).status_code == 404
    searched(web, terms=[{"id": id}])  # its vector is in the index and may be searched with


def test_a_picture_that_became_a_link_is_not_shown(web: TestClient, album: Path, tmp_path: Path) -> None:
    id = id_of(web, "album/003.png")
    assert web.get(f"/pictures/{id}").status_code == 200
    picture(seed=66).save(tmp_path / "secret.png")
    (album / "003.png").unlink()
    (album / "003.png").symlink_to(tmp_path / "secret.png")
    assert web.get(f"/pictures/{id}").status_code == 404


def test_members_of_archives_are_shown(web: TestClient, index: Index, album: Path) -> None:
    data = io.BytesIO()
    picture(40, 30, seed=31).save(data, "PNG")
    with tarfile.open(album / "more.tar", "w") as archive:
        info = tarfile.TarInfo("inside/one.png")
        info.size = len(data.getvalue())
        archive.addfile(info, io.BytesIO(data.getvalue()))
    index.sync(album.parent, what="both", archives=True)
    id = id_of(web, "album/more.tar#inside/one.png")
    assert Image.open(io.BytesIO(web.get(f"/pictures/{id}").content)).size == (40, 30)
    assert searched(web, terms=[{"id": id}], top=1)["results"][0]["id"] == id


def test_roots_can_be_narrowed(index: Index, tmp_path: Path) -> None:
    app = create_app(ServerSettings(token=TOKEN, roots=(str(tmp_path / "elsewhere"),)), index)
    results = searched(client(app), terms=[{"text": "a dog"}], top=1)["results"]
    assert results[0]["picture"] is None
    assert client(app).get(f"/pictures/{results[0]['id']}").status_code == 404


def test_explanations_are_those_of_the_models(web: TestClient, album: Path, vse_folder: str, camp_folder: str) -> None:
    id = id_of(web, "album/003.png")
    for model, folder in (("fast", vse_folder), ("reranker", camp_folder)):
        told = web.get("/api/explain", params={"id": id, "sentence": "two dog", "model": model}).json()
        direct = explain(Matcher.from_pretrained(folder), album / "003.png", "two dog")
        assert told["words"] == ["two", "dog"]
        assert told["score"] == pytest.approx(direct.score, abs=1e-5)
        for name in ("looks", "answers", "whole", "strength"):
            shown = getattr(direct, name)()
            assert told[name]["name"] == shown[0]
            np.testing.assert_allclose(told[name]["values"], shown[1], atol=1e-5)
        assert told["arrays"].keys() == direct.arrays().keys()


def test_explanations_have_limits(web: TestClient) -> None:
    id = id_of(web, "album/003.png")
    many = web.get("/api/explain", params={"id": id, "sentence": "a " * 60})
    assert (many.status_code, "at most 40" in many.json()["error"]) == (422, True)
    assert web.get("/api/explain", params={"id": id, "sentence": "a", "model": "none"}).status_code == 422
    sentence = searched(web, terms=[{"text": "dog"}], kind="sentence")["results"][0]["id"]
    assert web.get("/api/explain", params={"id": sentence, "sentence": "a"}).status_code == 422


def test_ids_last(index: Index) -> None:
    one, other = (client(create_app(ServerSettings(token=TOKEN), index)) for _ in range(2))
    assert id_of(one, "album/003.png") == id_of(other, "album/003.png")
