import io
import os
import time
import zipfile
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from diptych.search.index import Index
from diptych.web.app import create_app
from diptych.web.settings import ServerSettings
from tests.web.routers.asking import album, app, camp_folder, id_of, index, own_folders, searched, vse_folder, web
from tests.web.serving import TOKEN, client

__all__ = ["album", "app", "camp_folder", "index", "own_folders", "vse_folder", "web"]

HERE = {"Origin": "http://127.0.0.1"}
ONLY_HERE = [("/api/paths", {"ids": ["x"]}), ("/api/open-folder", {"id": "x"})]


def test_an_original_is_the_file_itself_and_never_shown_as_a_page(web: TestClient, album: Path) -> None:
    answer = web.get(f"/pictures/{id_of(web, 'album/003.png')}/original")
    assert answer.content == (album / "003.png").read_bytes()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="003.png"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_has_no_original_is_told_so(web: TestClient, album: Path) -> None:
    sentence = searched(web, terms=[{"text": "dog"}], kind="sentence")["results"][0]["id"]
    gone = id_of(web, "album/001.png")
    (album / "001.png").unlink()
    for id in ("nonsense", sentence, gone, "upload-gone"):
        assert web.get(f"/pictures/{id}/original").status_code == 404
        assert web.post("/api/zip", data={"id": [id]}).status_code == 404


def test_a_link_that_leads_out_of_the_folder_is_not_followed(web: TestClient, album: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes((album / "001.png").read_bytes())
    id = id_of(web, "album/001.png")
    (album / "001.png").unlink()
    (album / "001.png").symlink_to(secret)
    assert web.get(f"/pictures/{id}/original").status_code == 404
    assert web.post("/api/paths", json={"ids": [id]}, headers=HERE).status_code == 404


def test_several_come_in_one_zip(web: TestClient, album: Path) -> None:
    ids = [id_of(web, f"album/00{number}.png") for number in (0, 4, 2)]
    answer = web.post("/api/zip", data={"id": [*ids, ids[0]]})  # the same twice is once
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="diptych.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["album/000.png", "album/004.png", "album/002.png"]
        for name in archive.namelist():
            assert archive.read(name) == (album.parent / name).read_bytes()


def test_a_zip_has_an_end(web: TestClient) -> None:
    assert web.post("/api/zip", data={"id": ["x"] * 201}).status_code == 422
    assert web.post("/api/zip").status_code == 422


def test_so_many_zips_at_a_time(app: object, web: TestClient) -> None:
    service = app.state.service  # type: ignore[attr-defined]
    id = id_of(web, "album/000.png")
    held = [service.zips.take() for _ in range(4)]
    answer = web.post("/api/zip", data={"id": [id]})
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    held.pop()()
    assert web.post("/api/zip", data={"id": [id]}).status_code == 200
    assert web.post("/api/zip", data={"id": [id]}).status_code == 200  # its place is free again


def test_a_server_can_keep_originals_to_itself(index: Index) -> None:
    web = client(create_app(ServerSettings(token=TOKEN, originals=False), index))
    id = id_of(web, "album/000.png")
    assert web.get(f"/pictures/{id}/original").status_code == 403
    assert web.post("/api/zip", data={"id": [id]}).status_code == 403
    assert web.get(f"/pictures/{id}").status_code == 200
    page = web.get("/?q=dog").text
    assert "Download" not in page
    assert "zip" not in page.replace("/api/zip", "")


def test_the_page_on_this_machine_learns_whole_paths(web: TestClient, album: Path) -> None:
    ids = [id_of(web, f"album/00{number}.png") for number in (3, 1)]
    answer = web.post("/api/paths", json={"ids": ids}, headers=HERE)
    assert answer.json() == {"paths": [str(album / "003.png"), str(album / "001.png")]}


@pytest.mark.parametrize(("address", "body"), ONLY_HERE)
def test_nobody_but_the_page_on_this_machine_asks_for_that(
    web: TestClient, index: Index, address: str, body: dict[str, object]
) -> None:
    for headers, status in (
        ({}, 403),  # no browser says where it comes from
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example", "Host": "evil.example"}, 421),
        (HERE, 404),  # from here, but there is no such entry
        ({"Sec-Fetch-Site": "same-origin"}, 404),
    ):
        assert web.post(address, json=body, headers=headers).status_code == status, headers
    # Behind a proxy the page is not on this machine, whoever asks and whatever the token is.
    proxied = create_app(ServerSettings(token=TOKEN, hosts=("pictures.example",)), index)
    outside = client(proxied, TOKEN, "pictures.example")
    assert outside.post(address, json=body, headers={"Origin": "http://pictures.example"}).status_code == 403
    anywhere = client(create_app(ServerSettings(token=TOKEN, host="0.0.0.0"), index), TOKEN)
    assert anywhere.post(address, json=body, headers=HERE).status_code == 403


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop whose opener writes down what it is given."""
    program, told = tmp_path / "bin" / "xdg-open", tmp_path / "opened"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{told}.new" && mv "{told}.new" "{told}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setattr("sys.platform", "linux")
    return told


def test_a_folder_is_opened(web: TestClient, album: Path, desktop: Path) -> None:
    assert "Open its folder" in web.get("/?q=dog").text
    answer = web.post("/api/open-folder", json={"id": id_of(web, "album/002.png")}, headers=HERE)
    assert answer.json() == {"folder": "album"}
    until = time.monotonic() + 30
    while not desktop.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert desktop.read_text() == str(album)


def test_without_a_desktop_no_folder_is_opened(
    web: TestClient, desktop: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = id_of(web, "album/002.png")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert web.post("/api/open-folder", json={"id": id}, headers=HERE).status_code == 403
    assert "Open its folder" not in web.get("/?q=dog").text
    monkeypatch.setenv("DISPLAY", ":9")
    anywhere = client(create_app(ServerSettings(token=TOKEN, host="0.0.0.0"), index), TOKEN)
    assert "Open its folder" not in anywhere.get("/?q=dog").text
    assert not desktop.exists()
