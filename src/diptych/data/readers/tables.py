"""Captions in tables: csv, tsv, the `name.jpg#0<tab>caption` of Flickr, jsonl, and JSON lists or maps of records."""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from diptych.common.errors import DiptychError
from diptych.data.collection import Collection, Item, Sentence
from diptych.data.pictures import is_picture
from diptych.data.readers import fields
from diptych.data.readers.faults import Faults, Gathering, caption
from diptych.data.readers.picture_names import split_in, split_name, stem

Record = tuple[str, str, list[object], str | None]  # where, picture, captions, split
SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".token", ".txt"})


def read_table(path: Path, faults: Faults) -> Collection:
    """The captions of a csv, tsv, jsonl or `.token` file; rows of one picture are joined."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return _collect(path, _json_lines(path, faults), faults)
    return _collect(path, _rows(path, faults), faults)


def read_records(path: Path, data: Any, faults: Faults) -> Collection:
    """The captions of parsed JSON: a list of objects, or a map from file name to caption(s)."""
    return _collect(path, _records(path, data, faults), faults)


def is_records(data: Any) -> bool:
    """Whether parsed JSON is a list of captioned pictures, or a map from file name to captions."""
    if isinstance(data, list):
        return bool(data) and isinstance(data[0], dict) and _columns(data[0]) is not None
    return isinstance(data, dict) and bool(data) and is_picture(next(iter(data)))


def _collect(path: Path, records: Iterator[Record], faults: Faults) -> Collection:
    # Pictures in the order of their first mention.
    places: dict[str, str] = {}
    splits: dict[str, tuple[str, str]] = {}
    captions: dict[str, list[Sentence]] = {}
    default = split_in(path.name)
    for where, picture, texts, split in records:
        name = split_name(split) if split else default
        before = splits.setdefault(picture, (name, where))
        if before[0] != name:
            faults.tell(where, f"the id {picture!r} is in two splits: {name!r} here, {before[0]!r} at {before[1]}")
            continue
        places.setdefault(picture, where)
        own = captions.setdefault(picture, [])
        for text in texts:
            kept = caption(text, f"{picture}#{len(own)}", where, faults)
            if kept is not None:
                own.append(kept)
    short = len({stem(name) for name in places}) == len(places)
    gathering = Gathering(faults)
    for picture, where in places.items():
        split, metadata = splits[picture][0], {"filename": picture}
        if split == "restval":
            split, metadata = "train", {**metadata, "source_split": "restval"}
        id = stem(picture) if short else picture
        gathering.add(Item(id, tuple(captions[picture]), split, metadata=metadata), where)
    if not places and not faults.problems:
        raise DiptychError("no captions in it", where=path)
    return Collection(path.stem, gathering.items, format=f"captions {path.suffix.lstrip('.') or 'table'}")


def _columns(record: dict[str, Any]) -> tuple[str, str] | None:
    picture, text = fields.pick(record, fields.PICTURES), fields.pick(record, fields.CAPTIONS)
    return (picture, text) if picture is not None and text is not None else None


def _record(where: str, record: Any, faults: Faults) -> Record | None:
    columns = _columns(record) if isinstance(record, dict) else None
    if columns is None:
        faults.tell(where, "expected an object with 'image' and 'caption' or 'captions'")
        return None
    picture, texts = record[columns[0]], record[columns[1]]
    if not isinstance(picture, str | int) or isinstance(picture, bool) or picture == "":
        faults.tell(f"{where}: {columns[0]}", f"expected a file name, got {picture!r}")
        return None
    chosen = fields.pick(record, fields.SPLITS)
    split = record[chosen] if chosen else None
    several = [fields.text_of(text) for text in (texts if isinstance(texts, list) else [texts])]
    return where, str(picture), several, split if isinstance(split, str) else None


def _json_lines(path: Path, faults: Faults) -> Iterator[Record]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            faults.tell(f"{where}, column {error.colno}", f"not valid JSON: {error.msg}")
            continue
        record = _record(where, data, faults)
        if record is not None:
            yield record


def _records(path: Path, data: Any, faults: Faults) -> Iterator[Record]:
    if isinstance(data, dict):
        for name, texts in data.items():
            yield f"{path}: {name!r}", name, texts if isinstance(texts, list) else [texts], None
        return
    for i, entry in enumerate(data):
        record = _record(f"{path}: [{i}]", entry, faults)
        if record is not None:
            yield record


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DiptychError(f"not valid UTF-8: {error.reason} at byte {error.start}", where=path) from None
    except OSError as error:
        raise DiptychError(f"cannot be read: {error.strerror}", where=path) from None


def sniff(path: Path) -> str | None:
    """The separator of a captions table, or None where the first line does not look like one."""
    first = next((line for _, line in _lines(path) if line.strip()), "")
    for separator in ("\t", "|", ","):
        cells = [cell.strip() for cell in first.split(separator)]
        if len(cells) > 1 and (_header(cells) is not None or is_picture(_numbered(cells[0]))):
            return separator
    return None


def looks_like_captions(path: Path) -> bool:
    """Whether the first line of a table or jsonl file could be a caption's; a broken one could."""
    if path.suffix.lower() not in (".jsonl", ".ndjson"):
        return sniff(path) is not None
    first = next((line for _, line in _lines(path) if line.strip()), "")
    try:
        record = json.loads(first)
    except json.JSONDecodeError:
        return True
    return isinstance(record, dict) and _columns(record) is not None


def _header(cells: list[str]) -> tuple[int, int, int | None] | None:
    picture, text = fields.pick(cells, fields.PICTURES), fields.pick(cells, fields.CAPTIONS)
    if picture is None or text is None:
        return None
    split = fields.pick(cells, fields.SPLITS)
    return cells.index(picture), cells.index(text), cells.index(split) if split else None


def _numbered(name: str) -> str:
    """`name.jpg#3` is the fourth caption of `name.jpg`."""
    base, sign, number = name.rpartition("#")
    return base if sign and number.isdigit() else name


def cells_of(
    path: Path, lines: Iterable[str], separator: str = ",", *, quotes: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, and the line that it ends on; a table that cannot be read is an error with its line."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=quotes)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DiptychError(f"line {reader.line_num}: not a valid table: {error}", where=path) from None
        yield reader.line_num, cells


def _rows(path: Path, faults: Faults) -> Iterator[Record]:
    separator = sniff(path)
    if separator is None:
        raise DiptychError(
            "line 1: expected a header with 'image' and 'caption', or a picture's name and a caption", where=path
        )
    lines = (line + "\n" for _, line in _lines(path))
    columns: tuple[int, int, int | None] | None = None
    width = 0
    for line, cells in cells_of(path, lines, separator, quotes=separator == ","):
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}: line {line}"
        if columns is None:
            width = len(cells)
            columns = _header([cell.strip() for cell in cells])
            if columns is not None:
                continue
            columns = (0, width - 1, None)
        if len(cells) != width:
            hint = "; a comma inside a caption needs quotes around it" if separator == "," else ""
            faults.tell(where, f"expected {width} fields, got {len(cells)}{hint}")
            continue
        name = _numbered(cells[columns[0]].strip())
        if not name:
            faults.tell(where, "the picture's name is empty")
            continue
        yield where, name, [cells[columns[1]]], cells[columns[2]] if columns[2] is not None else None
