"""What is to be indexed, read from files: pictures, and the parts of text files, webdataset tars and parquet files."""

import csv
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Item, Open, Problem
from diptych.data.pictures import PictureBytes, PictureFile
from diptych.data.readers import fields
from diptych.data.readers.faults import Faults
from diptych.data.readers.webdataset import read_webdataset, stream_webdataset
from diptych.search.files import FoundFile, What, content_digest, file_kind, file_of
from diptych.search.store import OWN_FIELDS, Entry, Kind, Stamp, Value

ROWS_AT_ONCE = 64
Source = Open | None


@dataclass(frozen=True)
class NewEntry:
    """An entry that has no vectors yet.

    stamp: its digest is empty while the content has not been read
    open: decodes the picture; None for a sentence
    known: the digest of what the index already has under this key; the same content is not embedded again
    """

    key: str
    kind: Kind
    stamp: Stamp
    open: Source = None
    text: str = ""
    metadata: dict[str, Value] = field(default_factory=dict)
    known: str = ""

    def with_digest(self) -> "NewEntry":
        """The same with the hash of its content."""
        if self.stamp.digest:
            return self
        try:
            digest = content_digest(self.text if self.kind == "sentence" else self.open)
        except OSError as error:
            raise DiptychError(f"{self.key}: cannot be read: {error.strerror}") from None
        return replace(self, stamp=replace(self.stamp, digest=digest))


@dataclass(frozen=True)
class Failed:
    """An entry that could not be read."""

    key: str
    problem: Problem


Piece = NewEntry | Problem
# What became of a new entry: it comes back as it was, with its digest, where the index has this content already.
Outcome = Entry | NewEntry | Failed


def picture_of(file: FoundFile, metadata: dict[str, Value] | None = None, known: str = "") -> NewEntry:
    """A picture file as an entry to be."""
    stamp = Stamp(file.path, file.size, file.changed, "")
    return NewEntry(file.path, "picture", stamp, PictureFile(Path(file.path)), metadata=metadata or {}, known=known)


def sentence_entry(key: str, text: str, file: FoundFile, metadata: dict[str, Value] | None = None) -> NewEntry:
    """A sentence of a file as an entry to be."""
    stamp = Stamp(key, file.size, file.changed, content_digest(text))
    return NewEntry(key, "sentence", stamp, text=text, metadata=metadata or {})


def read_parts(file: FoundFile, what: What) -> Iterator[Piece]:
    """The wanted entries of a text file, tar or parquet file, and its problems, as they come; never an error."""
    lower = file.path.lower()
    try:
        if lower.endswith(".parquet"):
            yield from _parquet(file, what)
        elif file.kind == "archive":
            yield from _tar(file, what)
        elif lower.endswith((".jsonl", ".ndjson")):
            yield from _json_lines(file)
        elif lower.endswith((".csv", ".tsv")):
            yield from _table(file)
        else:
            yield from _lines(file)
    except DiptychError as error:
        yield Problem(file.path, str(error).removeprefix(f"{file.path}: "))
    except UnicodeDecodeError as error:
        yield Problem(file.path, f"not valid UTF-8: {error.reason} at byte {error.start}")
    except OSError as error:
        yield Problem(file.path, f"cannot be read: {error.strerror or error}")


def read_metadata(path: Path) -> dict[str, dict[str, Value]]:
    """Columns for pictures from a csv, tsv, jsonl or parquet file, by the picture's absolute path.

    One column names the picture, by its path or its path from this file's folder; the others are the metadata.
    """
    table: dict[str, dict[str, Value]] = {}
    for where, record in _records(path):
        column = fields.pick(record, fields.PICTURES)
        if column is None or not isinstance(record[column], str) or not record[column]:
            raise DiptychError(f"{where}: expected a column 'path' or 'file_name' with a picture's path")
        picture = os.path.normpath(os.path.join(os.path.abspath(path.parent), os.path.expanduser(record[column])))
        table[picture] = columns_of(record, without=(column,))
    return table


def columns_of(record: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Value]:
    """The columns that filters can ask for: text and numbers; what is empty or anything else is left out."""
    columns: dict[str, Value] = {}
    for name, value in record.items():
        if name in without or not isinstance(name, str) or not name.strip():
            continue
        column = name.strip() if name.strip() not in OWN_FIELDS else f"{name.strip()}_"
        if isinstance(value, bool):
            columns[column] = str(value).lower()
        elif isinstance(value, str | int | float) and value != "" and value == value:
            columns[column] = value
    return columns


def cell_value(cell: str) -> Value:
    """A cell of a table: a number where it reads like one."""
    text = cell.strip()
    try:
        number = float(text) if any(c in text for c in ".eE") else int(text)
    except ValueError:
        return text
    return number if number == number and abs(number) < 1 << 53 else text


def _lines(file: FoundFile) -> Iterator[Piece]:
    with open(file.path, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            text = " ".join(line.split())
            if text:
                yield sentence_entry(f"{file.path}#{number}", text, file)


def _table(file: FoundFile) -> Iterator[Piece]:
    for number, record in _rows(Path(file.path)):
        if isinstance(record, Problem):
            yield record
            continue
        column = fields.pick(record, fields.CAPTIONS)
        if column is None:
            names = ", ".join(map(repr, record))
            yield Problem(f"{file.path}: line 1", f"no column of sentences, such as 'caption' or 'text', among {names}")
            return
        text = " ".join(record[column].split())
        if text:
            columns = columns_of({k: cell_value(v) for k, v in record.items()}, (column,))
            yield sentence_entry(f"{file.path}#{number}", text, file, columns)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str] | Problem]]:
    """The rows of a csv or tsv file with a header, and the line that each ends on; what is wrong with a row."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        header: list[str] | None = None
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DiptychError(f"{path}: line {reader.line_num}: not a valid table: {error}") from None
            if header is None:
                header = [cell.strip() for cell in cells]
            elif cells:
                if len(cells) != len(header):
                    what = f"expected {len(header)} fields, got {len(cells)}"
                    yield reader.line_num, Problem(f"{path}: line {reader.line_num}", what)
                else:
                    yield reader.line_num, dict(zip(header, cells, strict=True))


def _json_lines(file: FoundFile) -> Iterator[Piece]:
    with open(file.path, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{file.path}: line {number}"
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                yield Problem(f"{where}, column {error.colno}", f"not valid JSON: {error.msg}")
                continue
            record = value if isinstance(value, dict) else {"text": value}
            column = fields.pick(record, fields.CAPTIONS)
            if column is None:
                yield Problem(where, "no sentence in it; expected text, or an object with 'caption' or 'text'")
                continue
            yield from _sentences(f"{file.path}#{number}", record[column], file, columns_of(record, (column,)), where)


def _sentences(key: str, told: Any, file: FoundFile, metadata: dict[str, Value], where: str) -> Iterator[Piece]:
    """One sentence, or several with numbered keys."""
    texts = [fields.text_of(text) for text in (told if isinstance(told, list) else [told])]
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            yield Problem(where, f"expected a sentence, got {text!r}")
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


def _parquet(file: FoundFile, what: What) -> Iterator[Piece]:
    """Rows with a picture (bytes, or the path of a file), with sentences, or with both; other columns are metadata."""
    for row, record in _parquet_rows(Path(file.path)):
        where, key = f"{file.path}: row {row}", f"{file.path}#{row}"
        picture = fields.pick(record, fields.PICTURES)
        caption = fields.pick(record, fields.CAPTIONS)
        metadata = columns_of(record, tuple(c for c in (picture, caption) if c))
        if picture is None and caption is None:
            yield Problem(file.path, "no column of pictures or sentences, such as 'image', 'path' or 'caption'")
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
        return Problem(where, f"expected a picture's bytes or path, got {value!r}")
    path = os.path.normpath(os.path.join(os.path.dirname(file.path), os.path.expanduser(value)))
    if file_kind(path) not in ("picture", "heic"):
        return Problem(where, f"{path} is not named like a picture")
    try:
        status = os.stat(path)
    except OSError as error:
        return Problem(path, f"cannot be read: {error.strerror}")
    return picture_of(FoundFile(path, "picture", status.st_size, status.st_mtime_ns), metadata)


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DiptychError(f"{path}: needs the package pyarrow; install diptych[search]") from None
    try:
        with parquet.ParquetFile(path) as table:
            row = 0
            for batch in table.iter_batches(ROWS_AT_ONCE):
                for record in batch.to_pylist():
                    yield row, record
                    row += 1
    except pyarrow.ArrowException as error:
        raise DiptychError(f"{path}: not a readable parquet file: {error}") from None


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table of any kind, each with its place."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DiptychError(f"{path}: no such file; expected a table of metadata (csv, tsv, jsonl or parquet)")
    if suffix == ".parquet":
        for row, record in _parquet_rows(path):
            yield f"{path}: row {row}", record
    elif suffix in (".csv", ".tsv"):
        for number, cells in _rows(path):
            if isinstance(cells, Problem):
                raise DiptychError(str(cells))
            name = fields.pick(cells, fields.PICTURES)
            yield f"{path}: line {number}", {k: v if k == name else cell_value(v) for k, v in cells.items()}
    elif suffix in (".jsonl", ".ndjson"):
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            if line.strip():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DiptychError(f"{path}: line {number}: not valid JSON: {error.msg}") from None
                if not isinstance(record, dict):
                    raise DiptychError(f"{path}: line {number}: expected an object")
                yield f"{path}: line {number}", record
    else:
        raise DiptychError(f"{path}: expected a table of metadata: csv, tsv, jsonl or parquet")


def open_key(key: str) -> Open:
    """A function that decodes the picture of an entry: a file, or a part of a tar or parquet file."""
    file = file_of(key)
    if file == key:
        return PictureFile(Path(key))
    part = key[len(file) + 1 :]
    return partial(_open_row if file.lower().endswith(".parquet") else _open_member, Path(file), part)


def _open_member(path: Path, name: str) -> Image.Image:
    try:
        with tarfile.open(path) as archive:
            content = archive.extractfile(name)
            data = content.read() if content is not None else b""
    except (tarfile.TarError, KeyError, OSError, EOFError):
        raise DiptychError(f"{path}: {name}: cannot be read from this tar") from None
    return PictureBytes(data, f"{path}: {name}")()


def _open_row(path: Path, row: str) -> Image.Image:
    where = f"{path}: row {row}"
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DiptychError(f"{path}: needs the package pyarrow; install diptych[search]") from None
    try:
        with parquet.ParquetFile(path) as table:
            wanted, group = int(row), 0
            while wanted >= table.metadata.row_group(group).num_rows:
                wanted -= table.metadata.row_group(group).num_rows
                group += 1
            column = fields.pick(table.schema_arrow.names, fields.PICTURES)
            value = table.read_row_group(group, columns=[column]).column(0)[wanted].as_py()
    except (ArrowException, OSError, ValueError, IndexError):
        raise DiptychError(f"{where}: cannot be read from this parquet file") from None
    data = value.get("bytes") if isinstance(value, Mapping) else value
    if not isinstance(data, bytes):
        raise DiptychError(f"{where}: holds no picture's bytes")
    return PictureBytes(data, where)()
