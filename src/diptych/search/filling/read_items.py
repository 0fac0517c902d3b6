"""What is to be indexed, read from files: the parts of text files, videos, webdataset tars and parquet files."""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from diptych.common.errors import DiptychError
from diptych.data.collection import DataProblem, Item
from diptych.data.pictures import PictureBytes
from diptych.data.readers import fields
from diptych.data.readers.faults import Faults
from diptych.data.readers.json_value import read_json
from diptych.data.readers.webdataset import read_webdataset, stream_webdataset
from diptych.search.filling.metadata import columns_of
from diptych.search.filling.new_entry import NewEntry, Piece, picture_of, sentence_entry
from diptych.search.filling.table_rows import csv_rows, parquet_rows
from diptych.search.filling.video_parts import video_parts
from diptych.search.filling.walk import PICTURES, FoundFile, What, file_kind
from diptych.search.stores.store import Stamp, Value, check_fields
from diptych.search.stores.values import cell_value


def read_parts(
    file: FoundFile, what: What, rows: tuple[int, int] | None = None, source: IO[bytes] | None = None
) -> Iterator[Piece]:
    """The wanted entries of a text file, video, tar or parquet file, and its problems, as they come; never an error.

    An entry that no store can keep is a problem too, and costs itself alone.

    rows: of a parquet file, the first row that is wanted and the one after the last
    source: where a parquet file is read from, if it is not on a disk of this machine
    """
    for piece in _pieces(file, what, rows, source):
        fault = _fault_of(piece) if isinstance(piece, NewEntry) else None
        yield piece if fault is None else fault


def _fault_of(entry: NewEntry) -> DataProblem | None:
    where = entry.key.encode("utf-8", "replace").decode()
    try:
        check_fields(entry.key, entry.text, entry.metadata, where)
    except DiptychError as error:
        return DataProblem(where, str(error).removeprefix(f"{where}: "))
    return None


def _pieces(file: FoundFile, what: What, rows: tuple[int, int] | None, source: IO[bytes] | None) -> Iterator[Piece]:
    lower = file.path.lower()
    try:
        if lower.endswith(".parquet"):
            yield from _parquet(file, what, rows, source)
        elif file.kind == "video":
            yield from video_parts(file)
        elif file.kind == "archive":
            yield from _tar(file, what)
        elif lower.endswith((".jsonl", ".ndjson")):
            yield from _json_lines(file)
        elif lower.endswith((".csv", ".tsv")):
            yield from _table(file)
        else:
            yield from _lines(file)
    except DiptychError as error:
        yield DataProblem(file.path, error.within(file.path))
    except UnicodeDecodeError as error:
        yield DataProblem(file.path, f"not valid UTF-8: {error.reason} at byte {error.start}")
    except OSError as error:
        if source is not None:  # who opened it knows whether it may go well another time
            raise
        yield DataProblem(file.path, f"cannot be read: {error.strerror or error}")


def _lines(file: FoundFile) -> Iterator[Piece]:
    with open(file.path, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            text = " ".join(line.split())
            if text:
                yield sentence_entry(f"{file.path}#{number}", text, file)


def _table(file: FoundFile) -> Iterator[Piece]:
    for number, record in csv_rows(Path(file.path)):
        if isinstance(record, DataProblem):
            yield record
            continue
        column = fields.pick(record, fields.CAPTIONS)
        if column is None:
            names = ", ".join(map(repr, record))
            yield DataProblem(
                f"{file.path}: line 1", f"no column of sentences, such as 'caption' or 'text', among {names}"
            )
            return
        text = " ".join(record[column].split())
        if text:
            columns = columns_of({k: cell_value(v) for k, v in record.items()}, (column,))
            yield sentence_entry(f"{file.path}#{number}", text, file, columns)


def _json_lines(file: FoundFile) -> Iterator[Piece]:
    with open(file.path, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{file.path}: line {number}"
            try:
                value = read_json(line)
            except json.JSONDecodeError as error:
                yield DataProblem(f"{where}, column {error.colno}", f"not valid JSON: {error.msg}")
                continue
            record = value if isinstance(value, dict) else {"text": value}
            column = fields.pick(record, fields.CAPTIONS)
            if column is None:
                yield DataProblem(where, "no sentence in it; expected text, or an object with 'caption' or 'text'")
                continue
            yield from _sentences(f"{file.path}#{number}", record[column], file, columns_of(record, (column,)), where)


def _sentences(key: str, told: Any, file: FoundFile, metadata: dict[str, Value], where: str) -> Iterator[Piece]:
    """One sentence, or several with numbered keys."""
    texts = [fields.text_of(text) for text in (told if isinstance(told, list) else [told])]
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            yield DataProblem(where, f"expected a sentence, got {text!r}")
        elif text.strip():
            yield sentence_entry(key if len(texts) == 1 else f"{key}.{i}", " ".join(text.split()), file, metadata)


def _tar(file: FoundFile, what: What) -> Iterator[Piece]:
    faults = Faults(go_on=True)
    path = Path(file.path)
    if file.path.lower().endswith(".tar"):
        items: Iterator[Item] = iter(read_webdataset([path], path.name, faults, captioned=False).items)
    else:
        items = stream_webdataset([path], faults)
    for item in items:
        name = item.metadata["filename"]
        if what != "sentences":
            key = f"{file.path}#{name}"
            yield NewEntry(key, "picture", Stamp(key, file.size, file.changed, ""), item.open)
        if what != "pictures":
            for i, sentence in enumerate(item.sentences):
                picture: dict[str, Value] = {"picture": f"{file.path}#{name}"}
                yield sentence_entry(f"{file.path}#{item.id}#{i}", sentence.text, file, picture)
    yield from faults.problems


def _parquet(file: FoundFile, what: What, rows: tuple[int, int] | None, source: IO[bytes] | None) -> Iterator[Piece]:
    """Rows with a picture (bytes, or the path of a file), with sentences, or with both; other columns are metadata."""
    for row, record in parquet_rows(Path(file.path) if source is None else source, file.path, rows):
        where, key = f"{file.path}: row {row}", f"{file.path}#{row}"
        picture = fields.pick(record, fields.PICTURES)
        caption = fields.pick(record, fields.CAPTIONS)
        metadata = columns_of(record, tuple(c for c in (picture, caption) if c))
        if picture is None and caption is None:
            yield DataProblem(file.path, "no column of pictures or sentences, such as 'image', 'path' or 'caption'")
            return
        if picture is not None and what != "sentences":
            yield _parquet_picture(record[picture], key, file, metadata, where)
        if caption is not None and what != "pictures":
            key = key if picture is None else f"{key}#caption"
            yield from _sentences(key, record[caption], file, metadata, where)


def _parquet_picture(value: Any, key: str, file: FoundFile, metadata: dict[str, Value], where: str) -> Piece:
    if isinstance(value, Mapping):  # as Hugging Face keeps pictures
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        stamp = Stamp(key, file.size, file.changed, "")
        return NewEntry(key, "picture", stamp, PictureBytes(value, where), metadata=metadata)
    if not isinstance(value, str) or not value:
        return DataProblem(where, f"expected a picture's bytes or path, got {value!r}")
    if "://" in file.path:
        return DataProblem(where, "names a picture by its path; here rows must hold their pictures' bytes")
    path = os.path.normpath(os.path.join(os.path.dirname(file.path), os.path.expanduser(value)))
    if file_kind(path) not in PICTURES:
        return DataProblem(where, f"{path} is not named like a picture")
    try:
        status = os.stat(path)
    except OSError as error:
        return DataProblem(path, f"cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return DataProblem(path, "cannot be read: not a plain file")
    return picture_of(FoundFile(path, "picture", status.st_size, status.st_mtime_ns), metadata)
