"""Columns that filters can ask for: from tables beside the pictures, and from the records that entries come with."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.common.files import read_text
from diptych.data.collection import DataProblem
from diptych.data.photo import TAKEN
from diptych.data.readers import fields
from diptych.data.readers.json_value import read_json
from diptych.search.filling.table_rows import csv_rows, parquet_rows
from diptych.search.stores.dates import taken_value
from diptych.search.stores.store import OWN_FIELDS, Value, check_fields
from diptych.search.stores.values import cell_value


def read_metadata(path: Path) -> dict[str, dict[str, Value]]:
    """Columns for pictures from a csv, tsv, jsonl or parquet file, by the picture's absolute path.

    One column names the picture, by its path or its path from this file's folder; the others are the metadata.
    """
    table: dict[str, dict[str, Value]] = {}
    for where, record in _records(path):
        column = fields.pick(record, fields.PICTURES)
        if column is None or not isinstance(record[column], str) or not record[column]:
            raise DiptychError("expected a column 'path' or 'file_name' with a picture's path", where=where)
        picture = os.path.normpath(os.path.join(os.path.abspath(path.parent), os.path.expanduser(record[column])))
        table[picture] = columns_of(record, without=(column,))
        check_fields(picture, "", table[picture], where)
    return table


def columns_of(record: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Value]:
    """The columns that filters can ask for: text and numbers; what is empty or anything else is left out."""
    columns: dict[str, Value] = {}
    for name, value in record.items():
        if name in without or not isinstance(name, str) or not name.strip():
            continue
        column = name.strip() if name.strip() not in OWN_FIELDS else f"{name.strip()}_"
        if column == TAKEN:  # dates in filters are compared with it
            taken = taken_value(value)
            column, value = (column, taken) if taken else (f"{TAKEN}_", value)
        if isinstance(value, bool):
            columns[column] = str(value).lower()
        elif isinstance(value, str | int | float) and value != "" and value == value:
            columns[column] = value
    return columns


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table of any kind, each with its place."""
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DiptychError("no such file; expected a table of metadata (csv, tsv, jsonl or parquet)", where=path)
    if suffix == ".parquet":
        for row, record in parquet_rows(path, str(path)):
            yield f"{path}: row {row}", record
    elif suffix in (".csv", ".tsv"):
        for number, cells in csv_rows(path):
            if isinstance(cells, DataProblem):
                raise DiptychError(str(cells))
            name = fields.pick(cells, fields.PICTURES)
            yield f"{path}: line {number}", {k: v if k == name else cell_value(v) for k, v in cells.items()}
    elif suffix in (".jsonl", ".ndjson"):
        for number, line in enumerate(read_text(path, "utf-8-sig").splitlines(), 1):
            if line.strip():
                try:
                    record = read_json(line)
                except json.JSONDecodeError as error:
                    raise DiptychError(f"line {number}: not valid JSON: {error.msg}", where=path) from None
                if not isinstance(record, dict):
                    raise DiptychError(f"line {number}: expected an object", where=path)
                yield f"{path}: line {number}", record
    else:
        raise DiptychError("expected a table of metadata: csv, tsv, jsonl or parquet", where=path)
