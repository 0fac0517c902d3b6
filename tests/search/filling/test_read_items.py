import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem
from diptych.search.filling.metadata import columns_of, read_metadata
from diptych.search.filling.new_entry import NewEntry
from diptych.search.filling.read_items import read_parts
from diptych.search.filling.walk import FoundFile, What, file_kind
from diptych.search.stores.keys import open_key
from tests.encoders.pictures import picture


def found(path: Path) -> FoundFile:
    kind = file_kind(path.name)
    assert kind is not None
    return FoundFile(str(path), kind, path.stat().st_size, path.stat().st_mtime_ns)


def read(path: Path, what: What = "both") -> tuple[list[NewEntry], list[DataProblem]]:
    pieces = list(read_parts(found(path), what))
    return [p for p in pieces if isinstance(p, NewEntry)], [p for p in pieces if isinstance(p, DataProblem)]


def png(seed: int) -> bytes:
    out = io.BytesIO()
    picture(20, 10, seed=seed).save(out, "PNG")
    return out.getvalue()


def test_lines_are_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\ufefftwo  dogs\n\n  a cat \r\n", encoding="utf-8")
    entries, problems = read(path)
    assert [(e.key, e.text, e.kind) for e in entries] == [
        (f"{path}#1", "two dogs", "sentence"),
        (f"{path}#3", "a cat", "sentence"),
    ]
    assert problems == []
    assert entries[0].stamp.size == path.stat().st_size
    assert entries[0].stamp.digest != entries[1].stamp.digest


def test_tables_have_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('caption,stars,place,date\n"two dogs, running",4,park,x\na cat,2.5,,y\nshort row\n,1,z,w\n')
    entries, problems = read(path)
    assert [e.text for e in entries] == ["two dogs, running", "a cat"]
    assert [e.metadata for e in entries] == [
        {"stars": 4, "place": "park", "date_": "x"},
        {"stars": 2.5, "date_": "y"},
    ]
    assert [str(p) for p in problems] == [f"{path}: line 4: expected 4 fields, got 1"]
    (tmp_path / "b.tsv").write_text("name\tsize\nx\t1\n")
    assert "no column of sentences" in str(read(tmp_path / "b.tsv")[1][0])


BAD_LINES = {
    "a lone surrogate": r'"a \ud800 cat"',
    "a lone surrogate in a column": r'{"text": "a cat", "place": "\ud800"}',
    "a lone surrogate in a column's name": r'{"text": "a cat", "\ud800": 1}',
    "a number of 5,000 digits": '{"text": "a cat", "year": ' + "9" * 5000 + "}",
    "a number of 4,000 digits": '{"text": "a cat", "year": ' + "9" * 4000 + "}",
    "deep nesting": "[" * 100_000 + "]" * 100_000,
    "deep nesting in a column": '{"text": "a cat", "deep": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no number": '{"text": "a cat", "year": 1e999}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_costs_itself(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'"two dogs"\n{line}\n"a boat"\n')
    entries, problems = read(path)
    assert [(e.key, e.text) for e in entries] == [(f"{path}#1", "two dogs"), (f"{path}#3", "a boat")]
    assert len(problems) == 1
    assert "2" in problems[0].where.removeprefix(str(path))
    str(problems[0]).encode()


@pytest.mark.parametrize("text", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_member_of_a_tar_costs_itself(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.tar"
    member = text if text.startswith("{") else '{"caption": ' + text + "}"
    tar(path, {"a.png": png(0), "a.json": b'{"caption": "x"}', "b.png": png(1), "b.json": member.encode(),
               "c.png": png(2), "c.json": b'{"caption": "z"}'})  # fmt: skip
    entries, _ = read(path, "sentences")
    assert {e.text for e in entries} >= {"x", "z"}
    assert {e.text for e in entries} <= {"x", "a cat", "z"}


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        '"a cat"',
        '{"text": "two dogs", "year": 2024, "deep": {"a": 1}}',
        "{bad",
        '{"x": 1}',
        '{"captions": ["a", "b", 3]}',
    ]
    path.write_text("\n".join(lines))
    entries, problems = read(path)
    assert [(e.key[len(str(path)) :], e.text) for e in entries] == [
        ("#1", "a cat"), ("#2", "two dogs"), ("#5.0", "a"), ("#5.1", "b"),
    ]  # fmt: skip
    assert entries[1].metadata == {"year": 2024}
    assert [str(p).removeprefix(f"{path}: ")[:7] for p in problems] == ["line 3,", "line 4:", "line 5:"]


def test_what_is_no_text_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n\xff\xfe\n")
    _, problems = read(tmp_path / "a.txt")
    assert "not valid UTF-8" in problems[0].what


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("suffix", [".tar", ".tgz"])
def test_webdataset_tars_hold_pictures_and_sentences(tmp_path: Path, suffix: str) -> None:
    members = {"a.png": png(0), "a.txt": b"two dogs", "d/b.png": png(1), "d/b.json": b'{"captions": ["x", "y"]}'}
    path = tar(tmp_path / f"t{suffix}", members)
    entries, problems = read(path)
    assert problems == []
    assert [(e.key[len(str(path)) + 1 :], e.kind) for e in entries] == [
        ("a.png", "picture"), ("a#0", "sentence"), ("d/b.png", "picture"), ("d/b#0", "sentence"), ("d/b#1", "sentence"),
    ]  # fmt: skip
    assert entries[1].metadata == {"picture": f"{path}#a.png"}
    assert [e.kind for e in read(path, "pictures")[0]] == ["picture", "picture"]
    assert [e.text for e in read(path, "sentences")[0]] == ["two dogs", "x", "y"]
    again = open_key(entries[2].key)()
    assert entries[2].open is not None
    assert again.tobytes() == entries[2].open().tobytes() == picture(20, 10, seed=1).tobytes()
    with pytest.raises(DiptychError, match="cannot be read from this tar"):
        open_key(f"{path}#none.png")()


def test_a_broken_tar_is_a_problem(tmp_path: Path) -> None:
    path = tar(tmp_path / "t.tar", {"a.png": png(0), "b.png": png(1)})
    path.write_bytes(path.read_bytes()[:700])
    assert read(path)[1]


def parquet(path: Path, columns: dict[str, list[Any]], **options: Any) -> Path:
    import pyarrow
    from pyarrow import parquet as pq

    pq.write_table(pyarrow.table(columns), path, **options)
    return path


def test_parquet_with_bytes_and_with_paths(tmp_path: Path) -> None:
    images = [{"bytes": png(i), "path": f"{i}.png"} for i in range(5)]
    columns = {"image": images, "caption": list("abcde"), "year": [2020 + i for i in range(5)]}
    path = parquet(tmp_path / "a.parquet", columns, row_group_size=2)
    entries, _ = read(path)
    assert [e.key[len(str(path)) :] for e in entries[:4]] == ["#0", "#0#caption", "#1", "#1#caption"]
    assert entries[2].metadata == {"year": 2021}
    assert open_key(f"{path}#3")().tobytes() == picture(20, 10, seed=3).tobytes()
    with pytest.raises(DiptychError, match="row 9"):
        open_key(f"{path}#9")()

    picture(20, 10, seed=7).save(tmp_path / "seven.png")
    names = ["seven.png", str(tmp_path / "seven.png"), "gone.png", "x.doc"]
    listed = parquet(tmp_path / "list.parquet", {"path": names, "stars": [1, 2, 3, 4]})
    entries, problems = read(listed, "pictures")
    assert [e.key for e in entries] == [str(tmp_path / "seven.png")] * 2
    assert [e.metadata for e in entries] == [{"stars": 1}, {"stars": 2}]
    assert len(problems) == 2

    parquet(tmp_path / "other.parquet", {"n": [1]})
    assert "no column of pictures" in read(tmp_path / "other.parquet")[1][0].what
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    assert "not a readable parquet file" in read(tmp_path / "bad.parquet")[1][0].what


def test_metadata_tables_know_pictures_by_path(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("file_name,album,stars\nsub/a.jpg,holiday,5\n")
    expected = {str(tmp_path / "sub/a.jpg"): {"album": "holiday", "stars": 5}}
    assert read_metadata(tmp_path / "m.csv") == expected
    record = {"path": str(tmp_path / "sub/a.jpg"), "album": "holiday", "stars": 5, "none": None}
    (tmp_path / "m.jsonl").write_text(json.dumps(record) + "\n")
    assert read_metadata(tmp_path / "m.jsonl") == expected
    assert read_metadata(parquet(tmp_path / "m.parquet", {k: [v] for k, v in record.items()})) == expected
    (tmp_path / "bad.csv").write_text("album\nholiday\n")
    for name, words in (("bad.csv", "expected a column 'path'"), ("x.csv", "no such file"), ("m.doc", "no such file")):
        with pytest.raises(DiptychError, match=words):
            read_metadata(tmp_path / name)


def test_a_day_that_a_table_gives_is_a_date(tmp_path: Path) -> None:
    columns = columns_of({"taken": "2019-07-04 12:30", "stars": 3})
    assert columns == {"taken": "2019-07-04T12:30:00", "stars": 3}
    assert columns_of({"taken": "2019"}) == {"taken": "2019-01-01T00:00:00"}
    assert columns_of({"taken": "last summer"}) == {"taken_": "last summer"}
    assert columns_of({"taken": 2019}) == {"taken_": 2019}
