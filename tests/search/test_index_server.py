"""An index on a server does what one in a file does."""

import os
from pathlib import Path

import pytest

from diptych.search.index import Index
from diptych.search.open_or_create import open_or_create
from diptych.search.stores.store import Condition
from tests.search.stores.backends import EMPTY


@pytest.mark.parametrize("server", ["milvus", "qdrant"])
def test_the_same_results_as_from_a_file(
    server: str, request: pytest.FixtureRequest, vse_folder: str, pictures: Path, tmp_path: Path
) -> None:
    address = f"{server}://127.0.0.1:{request.getfixturevalue(f'{server}_port')}/index_{os.getpid()}"
    (pictures / "words.txt").write_text("two dog\na red boat\n")
    with (
        open_or_create(address, vse_folder, device="cpu") as remote,
        Index.create(tmp_path / "i.db", vse_folder) as local,
    ):
        columns: dict[str, dict[str, str | float]] = {str(pictures / "001.png"): {"album": "a"}}
        for index in (remote, local):
            assert index.sync(pictures, what="both", metadata=columns).added == 8
            assert index.sync(pictures, what="both", metadata=columns).unchanged == 7
        os.rename(pictures / "000.png", pictures / "moved.png")
        (pictures / "002.png").unlink()
        for index in (remote, local):
            report = index.sync(pictures, what="both")
            assert (report.added, report.moved, report.deleted) == (0, 1, 1)
        assert list(remote.store.stamps()) == list(local.store.stamps())
        for kind in ("picture", "sentence"):
            found, expected = (index.search("two dog", kind=kind).results for index in (remote, local))
            assert [r.key for r in found] == [r.key for r in expected]
            assert [round(r.score, 4) for r in found] == [round(r.score, 4) for r in expected]
        where = [Condition("album", "=", "a")]
        assert [r.key for r in remote.search("two dog", where=where).results] == [str(pictures / "001.png")]
    with Index.open(address, device="cpu") as again:
        assert len(again) == 7
    EMPTY[server](address)
