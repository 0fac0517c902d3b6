import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.search.filling import embed_parts, embed_read, remote
from diptych.search.filling.embed import EmbedReport, embed
from diptych.search.filling.entry_table import read_parquet
from diptych.search.filling.parts_folder import PartsFolder
from diptych.search.filling.walk import Choice
from diptych.search.index import Index
from tests.encoders.pictures import picture
from tests.search import tiny
from tests.search.filling import killed_embed

BROKEN = b"no picture"


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_parts, "MEASURED", 0.0)
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))


def png(seed: int) -> bytes:
    held = io.BytesIO()
    picture(40, 30, seed=seed).save(held, "png")
    return held.getvalue()


def tar_of(path: Path, seeds: range, bad: bool = False) -> Path:
    with tarfile.open(path, "w") as archive:
        members = {f"{seed:03d}.png": png(seed) for seed in seeds} | ({"zzz.png": BROKEN} if bad else {})
        for name, data in members.items():
            for member, content in ((name, data), (name.replace("png", "txt"), b"a red dog")):
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def table_of(path: Path, seeds: range, group: int = 3) -> Path:
    rows = {"image": [png(seed) for seed in seeds], "stars": list(seeds)}
    parquet.write_table(pyarrow.table(rows), path, row_group_size=group)
    return path


def run(sources: list[Path | str], out: Path | str, model: str, **options: Any) -> EmbedReport:
    return embed([str(source) for source in sources], out, model, device="cpu", **options)


def rows_of(folder: Path) -> dict[str, np.ndarray]:
    rows: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        for some in read_parquet(path):
            assert not rows.keys() & set(some["keys"])
            rows |= dict(zip(some["keys"], some["vectors"], strict=True))
    return rows


def bad_of(folder: Path) -> dict[str, str]:
    lines = [json.loads(line) for path in folder.glob("bad-*.jsonl") for line in path.read_text().splitlines()]
    return {line["key"]: line["reason"] for line in lines}


def flaky(monkeypatch: pytest.MonkeyPatch, name: str, left: list[int]) -> list[str]:
    """Have a method of the store in memory fail as often as `left` says; the paths that it was called with."""
    store = type(fsspec.filesystem("memory"))
    work, asked = getattr(store, name), list[str]()

    def may_fail(self: Any, path: str, *args: Any, **options: Any) -> Any:
        asked.append(path)
        left[0] -= 1
        if left[0] >= 0:
            raise OSError("the line is down")
        return work(self, path, *args, **options)

    monkeypatch.setattr(store, name, may_fail)
    return asked


def same_index(one: Index, other: Index) -> None:
    """Every entry bit for bit, and what a sentence finds."""
    stamps = list(one.store.stamps())
    assert stamps == list(other.store.stamps())
    keys = [stamp.key for stamp in stamps]
    for a, b in zip(one.store.get(keys), other.store.get(keys), strict=True):
        assert a is not None
        assert b is not None
        assert (a.kind, a.text, a.metadata) == (b.kind, b.text, b.metadata)
        np.testing.assert_array_equal(a.vectors, b.vectors)
        assert (a.locals is None) == (b.locals is None)
        if a.locals is not None and b.locals is not None:
            assert a.locals.dtype == b.locals.dtype == np.float16
            np.testing.assert_array_equal(a.locals, b.locals)
    found, expected = (i.search("two dog", top=len(keys)).results for i in (one, other))
    assert [(r.path, r.score) for r in found] == [(r.path, r.score) for r in expected]


@pytest.fixture
def everything(tmp_path: Path) -> list[Path]:
    """A folder with a broken picture, a tar with another, and a parquet file."""
    folder = tiny.fill(tmp_path / "pictures", 7)
    (folder / "bad.png").write_bytes(BROKEN)
    return [
        folder,
        tar_of(tmp_path / "shard.tar", range(20, 25), bad=True),
        table_of(tmp_path / "t.parquet", range(30, 38)),
    ]


def test_folder_tar_and_parquet_into_a_store_are_as_if_they_were_indexed(
    vse_folder: str, everything: list[Path], tmp_path: Path
) -> None:
    report = run(everything, tmp_path / "out", vse_folder, part=3)
    assert (report.entries, report.bad, report.before) == (20, 2, 0)
    assert report.parts == 3 + 1 + 3  # eight pictures, a tar, eight rows
    assert report.speed is not None
    bad = bad_of(tmp_path / "out")
    assert bad == {
        str(everything[0] / "bad.png"): "not a picture of a known format",
        f"{everything[1]}#zzz.png": "not a picture of a known format",
    }
    assert rows_of(tmp_path / "out").keys() >= {str(everything[0] / "000.png"), f"{everything[2]}#7"}
    direct = Index.create(tmp_path / "direct.db", vse_folder, device="cpu")
    direct.sync(*everything)
    imported = Index.create(tmp_path / "imported.db", vse_folder, device="cpu")
    assert imported.import_(tmp_path / "out") == imported.import_(tmp_path / "out") == 20
    same_index(imported, direct)
    again = imported.sync(*everything)
    assert (again.added, again.changed, again.deleted) == (0, 0, 0)


def test_sets_sentences_and_locals_into_a_store_that_is_made_for_them(dive_folder: str, tmp_path: Path) -> None:
    camp = tiny.save_camp(tmp_path / "camp", f"{dive_folder}-vit")
    shard = tar_of(tmp_path / "shard.tar", range(6))
    run([shard], tmp_path / "out", dive_folder, keep_locals=camp, choice=Choice("both", archives=True))
    direct = Index.create(tmp_path / "direct.db", dive_folder, keep_locals=camp, device="cpu")
    direct.sync(shard, what="both")
    assert direct.store.set_size == 2
    from diptych.search.open_or_create import open_to_import

    imported = open_to_import(tmp_path / "imported.db", tmp_path / "out", device="cpu")
    assert imported.import_(tmp_path / "out") == 12
    assert (imported.model, imported.kept_locals) == (direct.model, direct.kept_locals)
    same_index(imported, direct)


def test_an_object_store_gives_what_a_disk_gives(vse_folder: str, everything: list[Path], tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for source in everything:
        memory.put(str(source), f"/bucket/{source.name}", recursive=True)
    try:
        sources = ["memory://bucket/pictures", "memory://bucket/*.tar", "memory://bucket/t.parquet"]
        report = run(sources, "memory://bucket/out", vse_folder, part=3)
        assert (report.entries, report.bad, report.parts) == (20, 2, 7)
        assert run(sources, "memory://bucket/out", vse_folder, part=3).speed is None
        memory.get("/bucket/out", str(tmp_path / "remote"), recursive=True)
        run(everything, f"file://{tmp_path}/out", vse_folder, part=3)
        here, there = rows_of(tmp_path / "out"), rows_of(tmp_path / "remote")
        prefix = str(tmp_path)
        named = {"memory://" + key.replace(prefix, "/bucket"): vector for key, vector in here.items()}
        assert named.keys() == there.keys()
        for key, vector in named.items():
            np.testing.assert_array_equal(there[key], vector)
        assert bad_of(tmp_path / "remote").keys() == {
            "memory:///bucket/pictures/bad.png",
            "memory:///bucket/shard.tar#zzz.png",
        }
        index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
        assert index.import_("memory://bucket/out") == len(index) == 20
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_request_that_fails_is_made_again_and_one_that_goes_on_failing_costs_no_picture(
    vse_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(tiny.fill(tmp_path / "pictures", 4)), "/flaky", recursive=True)
    left = [2]
    flaky(monkeypatch, "cat_file", left)
    monkeypatch.setattr("diptych.search.filling.embed_read.FETCHING", 1)
    try:
        assert run(["memory://flaky"], tmp_path / "out", vse_folder).entries == 4
        left[0] = 100
        with pytest.raises(DiptychError, match=r"memory:///flaky/000\.png: cannot be read: the line is down"):
            run(["memory://flaky"], tmp_path / "other", vse_folder)
        assert sorted(os.listdir(tmp_path / "other")) == ["plan.json"]
        left[0] = 0
        assert run(["memory://flaky"], tmp_path / "other", vse_folder).bad == 0
    finally:
        memory.rm("/flaky", recursive=True)


def test_killed_at_every_step_it_ends_in_the_same_files(vse_folder: str, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tiny.fill(tmp_path / "pictures", 12)
    (folder / "0030.png").write_bytes(BROKEN)
    command = [
        sys.executable,
        "-m",
        "tests.search.filling.killed_embed",
        str(folder),
        str(tmp_path / "killed"),
        vse_folder,
    ]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 3  # kills
    monkeypatch.setattr(embed_parts, "ROWS", killed_embed.ROWS)
    run([folder], tmp_path / "whole", vse_folder, part=killed_embed.PART, threads=1)
    killed, whole = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("killed", "whole"))
    assert killed == whole
    assert len(rows_of(tmp_path / "killed")) == 12


def test_only_missing_parts_are_embedded_and_bad_ones_again_when_asked(vse_folder: str, tmp_path: Path) -> None:
    folder, out = tiny.fill(tmp_path / "pictures", 6), tmp_path / "out"
    (folder / "0000.png").write_bytes(BROKEN)
    run([folder], out, vse_folder, part=2)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "part-00002.parquet").unlink()
    (out / ".part-00002.parquet.host.1.part").write_bytes(b"left by a kill")
    report = run([folder], out, vse_folder, part=2)
    assert (report.entries, report.before, report.bad) == (2, 3, 1)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run([folder], out, vse_folder, part=2).speed is None
    assert run([folder], out, vse_folder, part=2, retry=True).before == 3


@pytest.fixture
def mended(vse_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pictures in parts of two in memory://mended, of which one could not be read then, and can now."""
    folder, memory = tiny.fill(tmp_path / "pictures", 4), fsspec.filesystem("memory")
    with monkeypatch.context() as patch:
        once = iter([DataProblem(str(folder / "000.png"), "cannot be read: the disk was away")])
        patch.setattr(embed_read, "_fault_of", lambda file: next(once, None) if "000" in file.path else None)
        assert run([folder], "memory://mended", vse_folder, part=2).bad == 1
    yield folder
    memory.rm("/mended", recursive=True)


def test_what_was_unreadable_stays_told_until_its_part_is_there(
    vse_folder: str, mended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        flaky(patch, "put_file", [1000])
        with pytest.raises(DiptychError, match="the line is down"):
            run([mended], "memory://mended", vse_folder, part=2, retry=True)
    assert run([mended], "memory://mended", vse_folder, part=2).bad == 1
    report = run([mended], "memory://mended", vse_folder, part=2, retry=True)
    assert (report.entries, report.bad) == (2, 0)
    assert not PartsFolder("memory://mended").names() & {"bad-00000.jsonl", "bad-00001.jsonl"}


def test_only_a_list_that_is_there_is_removed_and_tried_again_where_that_fails(
    vse_folder: str, mended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = flaky(monkeypatch, "rm_file", [2])
    memory = fsspec.filesystem("memory")
    del memory.store["/mended/part-00001.parquet"]
    report = run([mended], "memory://mended", vse_folder, part=2, retry=True)
    assert (report.entries, report.bad) == (4, 0)
    assert asked == ["/mended/bad-00000.jsonl"] * 3
    PartsFolder("memory://mended").remove("bad-00000.jsonl")  # is gone


def test_what_other_processes_wrote_into_an_object_store_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, listed = fsspec.filesystem("memory"), dict[str, Any]()
    ask = memory.ls

    def ls(self: Any, path: str, detail: bool = True) -> Any:  # remembers, as the stores of clouds do
        if path not in listed:
            listed[path] = ask(path, detail=True)
        return listed[path] if detail else [info["name"] for info in listed[path]]

    monkeypatch.setattr(type(memory), "ls", ls)
    monkeypatch.setattr(type(memory), "invalidate_cache", lambda self, path=None: listed.pop(path, None))
    memory.pipe_file("/shared/plan.json", b"")
    try:
        assert PartsFolder("memory://shared").names() == {"plan.json"}
        memory.pipe_file("/shared/bad-00000.jsonl", b"")  # no listing knows
        assert PartsFolder("memory://shared").names() == {"plan.json", "bad-00000.jsonl"}
    finally:
        monkeypatch.undo()
        memory.rm("/shared", recursive=True)


def test_rows_of_several_parts_may_name_the_same_pictures(vse_folder: str, tmp_path: Path) -> None:
    tiny.fill(tmp_path, 2)
    named = {"path": ["000.png", "001.png"] * 3, "stars": list(range(6))}
    parquet.write_table(pyarrow.table(named), tmp_path / "named.parquet")
    out = tmp_path / "out"
    run([tmp_path / "named.parquet"], out, vse_folder, part=2)
    together = {path.name: path.read_bytes() for path in out.glob("part-*")}
    assert len(together) == 3
    for name in together:
        (out / name).unlink()
        run([tmp_path / "named.parquet"], out, vse_folder, part=2)
        assert (out / name).read_bytes() == together[name]  # as if it was read alone


def test_only_what_its_own_dead_runs_left_is_swept(vse_folder: str, tmp_path: Path) -> None:
    folder, out = tiny.fill(tmp_path / "pictures", 4), tmp_path / "out"
    host, ended = socket.gethostname(), subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own = f".plan.json.{host}.{ended.pid}.part"  # killed before it had a plan
    out.mkdir()
    (out / own).touch()
    (out / ".film.mkv.part").touch()
    with pytest.raises(DiptychError, match="out: is not empty and holds no plan"):
        run([folder], out, vse_folder, part=2)
    assert sorted(os.listdir(out)) == [".film.mkv.part", own]
    (out / ".film.mkv.part").unlink()
    run([folder], out, vse_folder, part=2)
    assert sorted(os.listdir(out)) == ["part-00000.parquet", "part-00001.parquet", "plan.json"]
    written = f".part-00001.parquet.{host}.{os.getppid()}.part"  # by a run under way
    kept = [".film.mkv.part", f".notes.json.{host}.{ended.pid}.part", written]
    left = [f".part-00001.parquet.{host}.{ended.pid}.part", ".bad-00001.jsonl.other.example.org.1.part"]
    for name in [*kept, *left]:
        (out / name).touch()
    with pytest.raises(DiptychError, match="begun with part 2, not 3"):
        run([folder], out, vse_folder, part=3)
    assert set(left) < set(os.listdir(out))
    run([folder], out, vse_folder, part=2)
    assert sorted(name for name in os.listdir(out) if name.startswith(".")) == sorted(kept)


def test_another_source_model_or_option_is_told(vse_folder: str, dive_folder: str, tmp_path: Path) -> None:
    folder, out = tiny.fill(tmp_path / "pictures", 4), tmp_path / "out"
    run([folder], out, vse_folder, part=2)
    with pytest.raises(DiptychError, match=r"out: begun with the model .*vse', not .*dive'; embed into another folder"):
        run([folder], out, dive_folder, part=2)
    with pytest.raises(DiptychError, match="out: begun with part 2, not 3"):
        run([folder], out, vse_folder, part=3)
    picture(40, 30, seed=99).save(folder / "001.png")
    tiny.fill(folder, 2, start=50)
    with pytest.raises(DiptychError, match="the source has changed since it was begun: files 2 new, 1 changed;"):
        run([folder], out, vse_folder, part=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(DiptychError, match="full: is not empty and holds no plan"):
        run([folder], tmp_path / "full", vse_folder)
    with pytest.raises(DiptychError, match="nowhere: no such file or folder"):
        run([tmp_path / "nowhere"], tmp_path / "new", vse_folder)


def test_a_model_that_is_another_under_its_name_is_told(tmp_path: Path) -> None:
    model = tiny.save_vse(tmp_path / "model")
    folder, out = tiny.fill(tmp_path / "pictures", 4), tmp_path / "out"
    run([folder], out, model, part=2)
    (out / "part-00001.parquet").unlink()
    weights = tmp_path / "model" / "model.safetensors"
    from safetensors.torch import load_file, save_file

    save_file(
        {name: -value if value.is_floating_point() else value for name, value in load_file(weights).items()}, weights
    )
    with pytest.raises(DiptychError, match="is not what it was when the plan was made: its vectors differ"):
        run([folder], out, model, part=2)


def test_parts_that_are_not_whole_or_of_another_plan_or_model_are_not_imported(
    vse_folder: str, dive_folder: str, tmp_path: Path
) -> None:
    folder, out = tiny.fill(tmp_path / "pictures", 4), tmp_path / "out"
    run([folder], out, vse_folder, part=2)
    run([folder], tmp_path / "other", vse_folder, part=3)
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    first = (out / "part-00000.parquet").read_bytes()
    (out / "part-00000.parquet").unlink()
    with pytest.raises(DiptychError, match=r"out: 1 of 2 parts are not there yet, such as part-00000\.parquet"):
        index.import_(out)
    (out / "part-00000.parquet").write_bytes((tmp_path / "other" / "part-00000.parquet").read_bytes())
    with pytest.raises(DiptychError, match=r"part-00000\.parquet: is not of this folder's plan"):
        index.import_(out)
    (out / "part-00000.parquet").write_bytes(first)
    assert index.import_(out) == len(index) == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(DiptychError, match=r"empty: holds no plan\.json"):
        index.import_(tmp_path / "empty")
    clip = Index.create(tmp_path / "clip.db", tiny.save_clip(tmp_path / "clip"), device="cpu")
    with pytest.raises(DiptychError, match=r"whose vectors are not those of .*vse"):
        clip.import_(out)


def import_cut_off(index: Index, out: str | Path) -> None:
    """Begin an import that is ended in its second part."""
    add, calls = index.store.add, []

    def cut_off(entries: Any) -> None:
        calls.append(len(entries))
        if len(calls) == 2:
            raise KeyboardInterrupt
        add(entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index.store, "add", cut_off)
        with pytest.raises(KeyboardInterrupt):
            index.import_(out)


def test_an_import_that_was_killed_goes_on(vse_folder: str, tmp_path: Path) -> None:
    folder, out = tiny.fill(tmp_path / "pictures", 6), tmp_path / "out"
    run([folder], out, vse_folder, part=2)
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    import_cut_off(index, out)
    assert len(index) == 2
    assert index.import_(out) == 4  # the first part is in
    assert len(index) == 6
    assert not [name for name in index.store.properties if name.startswith("importing:")]


@pytest.mark.parametrize("remote", [False, True])
def test_an_import_that_was_killed_begins_anew_where_parts_were_made_again(
    vse_folder: str, tmp_path: Path, mended: Path, remote: bool
) -> None:
    out: str | Path = "memory://mended"
    if not remote:
        fsspec.filesystem("memory").get("/mended", str(tmp_path / "out"), recursive=True)
        out = tmp_path / "out"
    index = Index.create(tmp_path / "i.db", vse_folder, device="cpu")
    import_cut_off(index, out)
    assert len(index) == 1
    run([mended], out, vse_folder, part=2, retry=True)
    assert index.import_(out) == len(index) == 4
