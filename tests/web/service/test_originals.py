import io
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from diptych.search.index import Index
from diptych.web.errors import TooLarge
from diptych.web.service.originals import CHUNK, MISSING, Original, zipped
from diptych.web.service.service import Service
from diptych.web.settings import ServerSettings
from tests.encoders.pictures import picture
from tests.web.models import index, own_folders, vse_folder
from tests.web.serving import TOKEN

__all__ = ["index", "own_folders", "vse_folder"]


def original(name: str, data: bytes, size: int | None = None) -> Original:
    return Original(name, None, 0.0, len(data) if size is None else size, lambda: BytesIO(data))


def gone(name: str) -> Original:
    return Original(name, None, 0.0, 5, lambda: open("/nowhere/at/all", "rb"))


def opened(pieces: Iterator[bytes]) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(b"".join(pieces)))


def test_a_zip_is_made_piece_by_piece() -> None:
    data = bytes(range(256)) * 4096
    pieces = list(zipped([original("a.jpg", data), original("b.jpg", b"")]))
    assert max(map(len, pieces)) < CHUNK + 1000  # never a whole file
    with opened(iter(pieces)) as archive:
        assert archive.testzip() is None
        assert (archive.read("a.jpg"), archive.read("b.jpg")) == (data, b"")


def test_names_are_apart_and_lead_nowhere() -> None:
    names = ["a/x.jpg", "a/x.jpg", "../../etc/x", "/x", "a\\b.jpg", "..", "a/x.jpg"]
    with opened(zipped([original(name, b"x") for name in names])) as archive:
        expected = ["a/x.jpg", "a/x (2).jpg", "etc/x", "x", "a/b.jpg", "picture", "a/x (3).jpg"]
        assert archive.namelist() == expected


def test_a_file_that_is_gone_is_named_and_one_that_grew_is_cut() -> None:
    with opened(zipped([gone("lost.jpg"), original("grown.jpg", b"12345678", size=4)])) as archive:
        assert archive.namelist() == ["grown.jpg", MISSING]
        assert archive.read("grown.jpg") == b"1234"
        assert b"lost.jpg" in archive.read(MISSING)


def test_too_many_bytes_are_refused_before_anything_is_sent(index: Index) -> None:
    service = Service(ServerSettings(token=TOKEN), index)
    ids = [service.ids.of(stamp.key) for stamp in index.store.stamps() if stamp.key.endswith(".png")][:3]
    total = sum(found.size for found in service.originals.several(ids))
    assert len(service.originals.several(ids, total)) == 3
    with pytest.raises(TooLarge, match="choose fewer"):
        service.originals.several(ids, total - 1)


def test_a_member_of_a_tar_is_given_as_it_is_in_it(tmp_path: Path, vse_folder: str) -> None:
    data = io.BytesIO()
    picture(40, 30, seed=1).save(data, "png")
    with tarfile.open(tmp_path / "some.tar", "w") as archive:
        member = tarfile.TarInfo("in/first.png")
        member.size = len(data.getvalue())
        archive.addfile(member, io.BytesIO(data.getvalue()))
    with Index.create(tmp_path / "index.db", vse_folder, device="cpu") as index:
        index.sync(tmp_path / "some.tar")
        service = Service(ServerSettings(token=TOKEN), index)
        (stamp,) = index.store.stamps()
        found = service.originals.get(service.ids.of(stamp.key))
        assert found.open().read() == data.getvalue()
        assert found.filename == "first.png"
        assert found.path is None
