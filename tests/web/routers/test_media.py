"""Videos as they are, to be played from a second on."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.data.clips import BLUE, RED, write_clip
from tests.web.models import camp_folder, index, own_folders, vse_folder
from tests.web.routers.asking import album, app, id_of, searched, web
from tests.web.serving import client

__all__ = ["album", "app", "camp_folder", "index", "own_folders", "vse_folder", "web"]
pytest.importorskip("av", reason="videos need diptych[video]")


@pytest.fixture
def clip(index: Index, album: Path) -> Path:
    path = write_clip(album / "clip.mp4", [(RED, 3.0), (BLUE, 3.0)], keys=10)
    index.sync(album.parent, what="both")
    return path


def frames(web: TestClient) -> list[dict[str, Any]]:
    found = searched(web, terms=[{"text": "a dog"}], top=100, sort="second", where=["second>=0"])["results"]
    return [dict(result) for result in found]


def test_a_frame_says_where_its_video_is(web: TestClient, clip: Path) -> None:
    told = frames(web)
    assert [(f["kind"], f["second"], f["path"]) for f in told] == [
        ("video", 0.0, "album/clip.mp4 at 0:00"), ("video", 3.0, "album/clip.mp4 at 0:03"),
    ]  # fmt: skip
    assert all(f["media"] == f"/media/{f['id']}" for f in told)
    assert web.get(f"/pictures/{told[1]['id']}").headers["content-type"] == "image/jpeg"
    picture = searched(web, terms=[{"text": "a dog"}], where=["stars>=0"])["results"][0]
    assert (picture["kind"], picture["second"], picture["media"], picture["dated"]) == ("picture", None, None, "file")


def test_the_video_comes_whole_and_in_ranges(web: TestClient, clip: Path) -> None:
    data, address = clip.read_bytes(), frames(web)[0]["media"]
    whole = web.get(address)
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, data, "video/mp4")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert "media-src 'self'" in whole.headers["content-security-policy"]
    part = web.get(address, headers={"Range": "bytes=100-299"})
    assert (part.status_code, part.content) == (206, data[100:300])
    assert part.headers["content-range"] == f"bytes 100-299/{len(data)}"
    assert web.get(address, headers={"Range": f"bytes={len(data) + 1}-"}).status_code == 416


def test_only_videos_of_the_index_are_given(
    web: TestClient, app: FastAPI, index: Index, clip: Path, album: Path, tmp_path: Path
) -> None:
    """As of pictures: nothing but what is in the index, within the folders that were indexed, links followed."""
    ids = app.state.service.ids
    assert web.get(f"/media/{id_of(web, 'album/003.png')}").status_code == 404
    for key in (str(clip), f"{clip}#00001.000", f"{clip}#1", str(album / "003.png#00000.000")):
        assert web.get(f"/media/{ids.of(key)}").status_code == 404
    assert web.get("/media/..%2f..%2fetc%2fpasswd").status_code == 404
    told = frames(web)[0]["media"]
    assert web.get(told, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}).status_code == 403
    secret = write_clip(tmp_path / "secret.mp4", [(RED, 1.0)])
    clip.unlink()
    clip.symlink_to(secret)
    assert web.get(told).status_code == 404
    clip.unlink()
    (album / "words.html").write_text("<script>")
    clip.symlink_to(album / "words.html")
    assert web.get(told).status_code == 404
    clip.unlink()
    assert web.get(told).status_code == 404
    assert client(app, host="example.org").get(told).status_code == 421


def test_where_no_originals_are_given_no_video_is(web: TestClient, index: Index, clip: Path) -> None:
    told = frames(web)[0]
    closed = create_app(ServerSettings(originals=False), index)
    silent = client(closed)
    assert frames(silent)[0]["media"] is None
    assert silent.get(told["media"]).status_code == 403
    assert "<video" not in silent.get("/why", params={"id": told["id"]}).text
    assert silent.get(f"/pictures/{told['id']}").status_code == 200
    closed.state.service.close()


def test_results_are_sorted_and_a_wrong_order_is_said(web: TestClient, album: Path) -> None:
    paths = [r["path"] for r in searched(web, terms=[{"text": "a dog"}], top=9, sort="-path")["results"]]
    assert paths == sorted(paths, reverse=True)
    forward = web.get("/api/search", params={"q": "a dog", "sort": "path", "top": 9}).json()["results"]
    assert [r["path"] for r in forward] == sorted(paths)
    answer = web.get("/api/search", params={"q": "a dog", "sort": "starz"})
    assert (answer.status_code, answer.json()["error"].endswith("did you mean 'stars'?")) == (422, True)


def test_the_page_plays_from_there(web: TestClient, clip: Path) -> None:
    told = frames(web)[1]
    page = web.get("/why", params={"id": told["id"]}).text
    assert f'src="{told["media"]}#t=3"' in page
    assert "<video" not in web.get("/why", params={"id": id_of(web, "album/003.png")}).text
    found = web.get("/", params={"q": "a dog", "sort": "-date"}).text
    assert "newest first" in found
    assert f'data-media="{told["media"]}" data-second="3.0"' in found
    here = {"Origin": "http://127.0.0.1"}
    assert web.post("/api/paths", json={"ids": [told["id"]]}, headers=here).json() == {"paths": [str(clip)]}
    assert "album/clip.mp4 at 0:03" in found
