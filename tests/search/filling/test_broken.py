import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from diptych.search.filling.broken import broken_keys
from diptych.search.filling.sync import Embed, SyncReport, sync
from diptych.search.filling.walk import Choice, roots_of
from diptych.search.stores.address import open_store
from diptych.search.stores.store import Layout, Store
from tests.data.clips import RED, write_clip
from tests.search.filling.fakes import DIM, FakeEmbed
from tests.search.filling.test_read_items import png, tar


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "i.db", Layout(DIM))
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pictures"
    made.mkdir()
    (made / "good.png").write_bytes(png(0))
    (made / "bad.png").write_bytes(b"no picture")
    return made


def run(store: Store, *paths: Path, retry: bool = False, archives: bool = False) -> tuple[SyncReport, int]:
    """What a run did, and how often a model was loaded."""
    loaded = []

    def load() -> Embed:
        loaded.append(1)
        return FakeEmbed()

    report = sync(store, roots_of(paths), load, Choice(archives=archives), {}, retry=retry)
    return report, len(loaded)


def remembered(store: Store) -> list[str]:
    return [Path(key).name for key in broken_keys(store.properties)]


def test_a_broken_picture_loads_the_model_once(store: Store, folder: Path) -> None:
    first, loaded = run(store, folder)
    assert (first.added, len(first.problems), first.remembered, loaded) == (1, 1, 0, 1)
    again, loaded = run(store, folder)
    assert (again.problems, again.remembered, loaded) == (first.problems, 1, 0)
    forced, loaded = run(store, folder, retry=True)
    assert (forced.problems, forced.remembered, loaded) == (first.problems, 0, 1)
    assert run(store, folder)[1] == 0


def test_it_is_tried_again_when_its_file_changes(store: Store, folder: Path) -> None:
    run(store, folder)
    (folder / "bad.png").write_bytes(b"other words")
    assert run(store, folder)[1] == 1
    os.utime(folder / "bad.png", ns=(1, 1))
    assert run(store, folder)[1] == 1
    (folder / "bad.png").write_bytes(png(5))
    report, loaded = run(store, folder)
    assert (report.added, report.problems, loaded, remembered(store)) == (1, (), 1, [])


def test_it_is_tried_again_when_more_pixels_are_decoded(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bad.png").unlink()
    monkeypatch.setenv("DIPTYCH_MAX_PIXELS", "10")
    report, _ = run(store, folder)
    assert "too large" in str(report.problems[0])
    assert run(store, folder)[1] == 0
    monkeypatch.delenv("DIPTYCH_MAX_PIXELS")
    report, loaded = run(store, folder)
    assert (report.added, loaded, remembered(store)) == (1, 1, [])


def test_a_picture_that_broke_is_taken_out_and_remembered(store: Store, folder: Path) -> None:
    run(store, folder)
    (folder / "good.png").write_bytes(b"spoilt")
    report, _ = run(store, folder)
    assert (report.deleted, sorted(remembered(store))) == (1, ["bad.png", "good.png"])
    report, loaded = run(store, folder)
    assert (len(report.problems), report.remembered, loaded) == (2, 2, 0)


def test_what_is_gone_is_forgotten_and_what_lies_elsewhere_is_not(store: Store, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    run(store, folder, other)
    (folder / "bad.png").unlink()
    run(store, folder)
    assert broken_keys(store.properties) == [str(other / "bad.png")]
    assert run(store, other)[1] == 0


def test_a_file_that_is_named_itself(store: Store, folder: Path) -> None:
    run(store, folder / "bad.png", folder / "good.png")
    assert run(store, folder / "bad.png")[1] == 0
    assert run(store, folder)[1] == 0


def test_pictures_within_archives(store: Store, folder: Path) -> None:
    tar(folder / "t.tar", {"a.png": png(1), "b.png": b"broken"})
    first, _ = run(store, folder, archives=True)
    assert (first.added, len(first.problems)) == (2, 2)
    again, loaded = run(store, folder, archives=True)
    assert (sorted(map(str, again.problems)), again.remembered) == (sorted(map(str, first.problems)), 2)
    assert loaded == 0


def test_what_could_not_be_read_at_all_is_not_remembered(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def denied(path: Path, *arguments: str) -> object:  # to root too
        if path.name == "good.png":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", denied)
        report, _ = run(store, folder)
        assert len(report.problems) == 2
    report, loaded = run(store, folder)
    assert (report.added, report.remembered, loaded) == (1, 1, 1)


def test_a_broken_video_is_not_tried_again(store: Store, folder: Path) -> None:
    pytest.importorskip("av", reason="videos need diptych[video]")
    (folder / "bad.png").unlink()
    (folder / "clip.mp4").write_bytes(b"no video")
    first, _ = run(store, folder)
    assert (first.added, len(first.problems), first.remembered) == (1, 1, 0)
    again, loaded = run(store, folder)
    assert (again.problems, again.remembered, again.unchanged, loaded) == (first.problems, 1, 1, 0)
    write_clip(folder / "clip.mp4", [(RED, 1.0)])
    assert (run(store, folder)[0].added, remembered(store)) == (1, [])
    (folder / "clip.mp4").write_bytes(b"broken since")  # what was found of it stays, as with a tar
    once, _ = run(store, folder)
    again, _ = run(store, folder)
    assert (len(once.problems), again.problems, again.remembered, again.unchanged) == (1, once.problems, 1, 2)
    assert len(list(store.stamps())) == 2
