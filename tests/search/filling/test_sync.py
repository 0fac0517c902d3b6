import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diptych.search.filling.plan import Metadata
from diptych.search.filling.skipped import skipped_line
from diptych.search.filling.sync import SyncReport, sync
from diptych.search.filling.walk import Choice, What, roots_of
from diptych.search.stores.address import open_store
from diptych.search.stores.store import Condition, Layout, Store
from tests.search import tiny
from tests.search.filling.fakes import DIM, FakeEmbed, vector
from tests.search.filling.test_read_items import png, tar
from tests.search.filling.test_walk import close


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "i.db", Layout(DIM))
    yield opened
    opened.close()


def run(
    store: Store,
    *paths: Path,
    what: What = "pictures",
    metadata: Metadata | None = None,
    archives: bool = False,
    delete: bool = False,
) -> tuple[SyncReport, list[str]]:
    fake = FakeEmbed()
    report = sync(store, roots_of(paths), lambda: fake, Choice(what, archives=archives), metadata or {}, delete)
    return report, fake.keys


def figures(report: SyncReport) -> tuple[int, int, int, int, int]:
    return report.added, report.changed, report.moved, report.deleted, report.unchanged


def keys(store: Store) -> list[str]:
    return [stamp.key for stamp in store.stamps()]


def check(store: Store) -> None:
    """Every vector is that of its entry's content now."""
    for stamp in store.stamps():
        entry = store.get([stamp.key])[0]
        assert entry is not None
        np.testing.assert_allclose(entry.vectors, vector(stamp.digest), atol=1e-6)


def test_new_changed_moved_and_deleted_files(store: Store, pictures: Path) -> None:
    report, _ = run(store, pictures)
    assert figures(report) == (6, 0, 0, 0, 0)
    assert keys(store) == [str(pictures / f"{i:03d}.png") for i in range(6)]
    report, embedded = run(store, pictures)
    assert (figures(report), embedded) == ((0, 0, 0, 0, 6), [])

    shutil.copy(pictures / "005.png", pictures / "000.png")  # other content
    (pictures / "sub").mkdir()
    os.rename(pictures / "001.png", pictures / "sub" / "new.png")
    (pictures / "002.png").unlink()
    os.utime(pictures / "003.png")  # only touched
    tiny.fill(pictures, 1, start=9)
    report, embedded = run(store, pictures)
    assert figures(report) == (1, 1, 1, 1, 2)
    assert sorted(Path(k).name for k in embedded) == ["000.png", "009.png"]
    assert str(pictures / "sub" / "new.png") in keys(store)
    check(store)
    report, embedded = run(store, pictures)
    assert (figures(report), embedded) == ((0, 0, 0, 0, 6), [])


def test_only_what_is_below_the_folder_is_looked_at(store: Store, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 2), tiny.fill(tmp_path / "one-more", 2, start=5)
    run(store, one, two)
    (one / "000.png").unlink()
    (two / "005.png").unlink()
    assert figures(run(store, one)[0]) == (0, 0, 0, 1, 1)
    assert str(two / "005.png") in keys(store)
    os.rename(two / "006.png", one / "here.png")  # between folders that are indexed together
    assert figures(run(store, one, two)[0]) == (0, 0, 1, 1, 1)


def test_two_copies_are_two_entries(store: Store, pictures: Path) -> None:
    run(store, pictures)
    shutil.copy(pictures / "000.png", pictures / "copy.png")
    assert figures(run(store, pictures)[0]) == (1, 0, 0, 0, 6)
    (pictures / "000.png").unlink()
    (pictures / "001.png").unlink()
    os.rename(pictures / "copy.png", pictures / "copy2.png")
    report, embedded = run(store, pictures)
    # Either of the two lost entries may become the moved one; none is embedded again.
    assert (report.moved, report.deleted, embedded) == (1, 2, [])
    check(store)


def test_unreadable_files_are_told_every_time_and_nothing_else_suffers(store: Store, pictures: Path) -> None:
    (pictures / "bad.jpg").write_bytes(b"nothing")
    whole = (pictures / "000.png").read_bytes()
    (pictures / "cut.png").write_bytes(whole[: len(whole) // 2])
    for added in (6, 0):
        report, _ = run(store, pictures)
        assert report.added == added
        assert sorted(p.where for p in report.problems) == [str(pictures / "bad.jpg"), str(pictures / "cut.png")]
    # A picture that breaks leaves the index; a picture that is mended enters it.
    (pictures / "001.png").write_bytes(b"broken")
    (pictures / "cut.png").write_bytes(whole)
    assert figures(run(store, pictures)[0]) == (1, 0, 0, 1, 5)


def test_metadata_is_kept_and_renewed_without_embedding(store: Store, pictures: Path) -> None:
    name = str(pictures / "000.png")
    run(store, pictures, metadata={name: {"album": "a"}})
    assert store.count([Condition("album", "=", "a")]) == 1
    report, embedded = run(store, pictures, metadata={name: {"album": "a"}})
    assert (report.unchanged, embedded) == (6, [])
    report, embedded = run(store, pictures, metadata={name: {"album": "b"}, str(pictures / "001.png"): {"n": 2}})
    assert (report.unchanged, embedded) == (4, [])
    assert store.count([Condition("album", "=", "b")]) == store.count([Condition("n", "=", 2)]) == 1
    run(store, pictures)  # without a table, what is known stays
    os.rename(name, pictures / "moved.png")
    run(store, pictures)
    entry = store.get([str(pictures / "moved.png")])[0]
    assert entry is not None
    assert entry.metadata == {"album": "b", "width": 40, "height": 30, "bytes": entry.stamp.size}
    check(store)


def test_sentences_of_a_file(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (folder / "a.txt!.png").write_bytes(png(0))  # its key stands between a.txt and a.txt#1
    assert figures(run(store, folder, what="both")[0]) == (4, 0, 0, 0, 0)
    assert figures(run(store, folder, what="both")[0]) == (0, 0, 0, 0, 2)
    (folder / "a.txt").write_text("one\nzwei\n")
    report, embedded = run(store, folder, what="both")
    assert figures(report) == (0, 1, 0, 1, 1)
    assert embedded == [f"{folder}/a.txt#2"]
    assert keys(store) == [f"{folder}/a.txt!.png", f"{folder}/a.txt#1", f"{folder}/a.txt#2"]
    check(store)
    assert figures(run(store, folder)[0]) == (0, 0, 0, 0, 1)  # pictures only: sentences stay as they are
    (folder / "a.txt").unlink()
    assert figures(run(store, folder, what="both")[0]) == (0, 0, 0, 2, 1)


def test_tars(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    tar(folder / "t.tar", {"a.png": png(0), "a.txt": b"one", "b.png": png(1), "c.png": b"broken"})
    assert run(store, folder, what="both")[0].added == 0  # tars within folders are asked for
    report, _ = run(store, folder, what="both", archives=True)
    assert (report.added, len(report.problems)) == (3, 1)
    report, embedded = run(store, folder, what="both", archives=True)
    assert (report.added, len(report.problems), embedded) == (0, 1, [])  # the broken one is remembered
    tar(folder / "t.tar", {"a.png": png(0), "b.png": png(5), "c.png": png(2)})
    report, embedded = run(store, folder / "t.tar")
    assert [k.partition("#")[2] for k in embedded] == ["b.png", "c.png"]
    assert (report.added, report.changed, report.deleted) == (1, 1, 1)
    check(store)
    report, embedded = run(store, folder / "t.tar")
    assert (report.unchanged, embedded) == (1, [])


def test_a_tar_that_breaks_keeps_its_entries(store: Store, tmp_path: Path) -> None:
    path = tar(tmp_path / "t.tar", {"a.png": png(0), "b.png": png(1)})
    run(store, path)
    path.write_bytes(path.read_bytes()[:700])
    report, _ = run(store, path)
    assert (report.deleted, len(report.problems)) == (0, 1)
    assert len(keys(store)) == 2


def test_a_folder_that_cannot_be_read_keeps_its_entries(
    store: Store, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.fill(pictures / "closed", 2, start=7)
    run(store, pictures)
    close(monkeypatch, pictures / "closed")
    report, _ = run(store, pictures)
    assert (report.deleted, report.unchanged, len(report.problems)) == (0, 6, 1)


def test_killed_many_times_it_goes_on(tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", 60)
    (folder / "a.txt").write_text("\n".join(f"sentence {i}" for i in range(40)))
    tar(folder / "t.tar", {f"{i}.png": png(100 + i) for i in range(20)})
    address = tmp_path / "i.db"
    dice = random.Random(0)

    def start(seconds: float) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.search.filling.killed_sync", str(folder), str(address), str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    counts = [0]
    for _ in range(4):
        process = start(0.02)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        looking = open_store(address)
        while process.poll() is None and looking.count() == counts[-1]:
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        counts.append(looking.count())
        check(looking)
        looking.close()
    assert counts == sorted(set(counts))  # every run got further
    assert counts[-1] < 120
    last = start(0)
    out, _ = last.communicate(timeout=60)
    embedded = int(out.split()[2])
    store = open_store(address)
    assert store.count() == 120  # nothing lost
    assert embedded == 120 - counts[-1]  # nothing done twice that was kept
    assert len(set(keys(store))) == 120
    check(store)
    assert run(store, folder, what="both", archives=True)[1] == []
    store.close()


def test_pictures_without_a_decoder_are_told_once(
    store: Store, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diptych.search.filling.skipped.heic_is_read", lambda: False)
    for i in range(3):
        (pictures / f"{i}.heic").write_bytes(b"x")
    report, _ = run(store, pictures)
    assert (report.added, report.problems) == (6, ())
    assert list(map(str, report.skipped)) == ["3 .heic (pip install 'diptych[heic]')"]
    assert not report.nothing_read


def test_files_that_cannot_be_read_any_more_keep_their_entries(
    store: Store, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that read them is gone, the files are not."""
    run(store, pictures)
    monkeypatch.setattr("diptych.search.filling.plan.can_be_read", lambda kind: kind != "picture")
    report, _ = run(store, pictures)
    assert (report.unchanged, report.deleted, len(keys(store))) == (6, 0, 6)
    assert sum(kind.count for kind in report.skipped) == 6


def test_what_is_skipped_is_counted_by_its_ending(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("a.XMP", "b.xmp", "c.txt", "d.tar.gz", "e", ".hidden.xmp", "f.xyz"):
        (folder / name).write_text("x")
    (folder / "folder.xmp").mkdir()
    report, _ = run(store, folder)
    told = ["1 .tar.gz (--archives)", "1 .txt (--what both)", "2 .xmp", "1 without ending", "1 .xyz"]
    assert list(map(str, report.skipped)) == told
    assert skipped_line(report.skipped) == f"6 skipped: {', '.join(told)}"
    assert report.nothing_read
    tiny.fill(folder, 1)
    assert not run(store, folder)[0].nothing_read


def test_columns_are_filled_in_without_embedding_again(store: Store, pictures: Path) -> None:
    """As in an index from before pictures were asked what they say of themselves."""
    exif = Image.Exif()
    exif[271], exif[272] = "Testmaker", "One"
    exif.get_ifd(0x8769)[36867] = "2019:07:04 12:30:00"
    Image.new("RGB", (30, 20)).save(pictures / "old.jpg", exif=exif)
    name = str(pictures / "old.jpg")
    first, embedded = run(store, pictures, metadata={name: {"camera": "mine"}})
    assert (len(embedded), first.described) == (7, 0)
    assert store.count([Condition("date", "<", "2020")]) == 0
    vectors = store.get([name])[0].vectors  # type: ignore[union-attr]
    report, embedded = run(store, pictures)
    assert (report.unchanged, report.described, embedded) == (7, 7, [])
    entry = store.get([name])[0]
    assert entry is not None
    size = os.path.getsize(name)
    # What was given stays.
    assert entry.metadata == {
        "camera": "mine",
        "taken": "2019-07-04T12:30:00",
        "width": 30,
        "height": 20,
        "bytes": size,
    }
    assert np.array_equal(entry.vectors, vectors)
    assert store.count([Condition("date", "<", "2020")]) == 1
    assert run(store, pictures)[0].described == 0
    check(store)


def test_a_bad_line_or_member_stops_nothing(store: Store, pictures: Path) -> None:
    (pictures / "a.jsonl").write_text('"two dogs"\n{"text": "a cat", "year": 1e999}\n"\\ud800"\n')
    tar(pictures / "b.tar", {"x.png": png(0), "x.json": b"[" * 100_000, "y\udcff.png": png(1), "z.png": png(2)})
    for added in (8, 0):
        report, _ = run(store, pictures, what="both", archives=True)
        assert report.added == added
        assert len(report.problems) == 4
    check(store)


def test_a_folder_that_is_empty_today_loses_nothing_unasked(store: Store, tmp_path: Path) -> None:
    one, two = tiny.fill(tmp_path / "one", 3), tiny.fill(tmp_path / "two", 4, start=5)
    run(store, one, two)
    shutil.rmtree(one)
    one.mkdir()
    (two / "005.png").unlink()
    report, _ = run(store, one, two)
    assert figures(report) == (0, 0, 0, 1, 3)  # what another folder lost is another matter
    assert [(m.root, m.gone, m.known) for m in report.missing] == [(str(one), 3, 3)]
    assert str(report.missing[0]) == f"{one}: all 3 files that the index knows are gone"
    assert store.count() == 6
    tiny.fill(one, 3)
    report, _ = run(store, one, two)
    assert (report.deleted, report.missing, store.count()) == (0, (), 6)
    shutil.rmtree(one)
    one.mkdir()
    report, _ = run(store, one, two, delete=True)
    assert (report.deleted, report.missing, store.count()) == (3, (), 3)


def test_most_of_a_folder_gone(store: Store, tmp_path: Path) -> None:
    folder = tiny.fill(tmp_path / "pictures", 11)
    run(store, folder)
    for i in range(5):  # a handful goes
        (folder / f"{i:03d}.png").unlink()
    assert run(store, folder)[0].deleted == 5
    tiny.fill(folder, 5)
    run(store, folder)
    for i in range(6):
        (folder / f"{i:03d}.png").unlink()
    report, _ = run(store, folder)
    assert (report.deleted, [(m.gone, m.known) for m in report.missing]) == (0, [(6, 11)])
    # A folder that has another name is not one that is gone.
    tiny.fill(folder, 6)
    run(store, folder)
    moved = folder / "moved"
    moved.mkdir()
    for i in range(11):
        os.rename(folder / f"{i:03d}.png", moved / f"{i:03d}.png")
    report, _ = run(store, folder)
    assert (report.moved, report.deleted, report.missing) == (11, 0, ())
