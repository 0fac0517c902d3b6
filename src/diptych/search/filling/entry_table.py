"""Entries with their vectors as the rows of a parquet file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.data.readers.json_value import read_json
from diptych.search.filling.imported_columns import READ
from diptych.search.stores.store import Entry, Layout

# Rows that are read or written at once.
AT_ONCE = 1024
# The file's own note of what its vectors are.
NOTE = b"diptych"


class EntryTable:
    """A parquet file that is being written: key, kind, vector, text, metadata, size, changed, digest.

    A set of K vectors is one row of K x d numbers. With `locals` there are two columns more: the local features of a
    picture (cells, f) as one list of float16, and how many cells they are.

    about: what the file says of itself besides the layout
    """

    def __init__(self, path: Path, layout: Layout, about: Mapping[str, Any], locals: bool = False) -> None:
        self._arrow, parquet = arrow(path)
        self._locals = locals
        self._width = layout.set_size * layout.dim
        self.schema = self._schema({**asdict(layout), **about})
        self._writer = parquet.ParquetWriter(path, self.schema)

    def __enter__(self) -> "EntryTable":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, entries: Sequence[Entry]) -> None:
        """Add rows."""
        if not entries:
            return
        a = self._arrow
        flat = np.stack([e.vectors for e in entries]).reshape(-1)
        columns = [
            a.array([e.key for e in entries]),
            a.array([e.kind for e in entries]),
            a.FixedSizeListArray.from_arrays(a.array(flat), self._width),
            a.array([e.text for e in entries]),
            a.array([told_columns(e) for e in entries]),
            a.array([e.stamp.size for e in entries], a.int64()),
            a.array([e.stamp.changed for e in entries], a.int64()),
            a.array([e.stamp.digest for e in entries]),
        ]
        if self._locals:
            columns += self._local_columns(entries)
        self._writer.write_table(a.table(columns, schema=self.schema))

    def _local_columns(self, entries: Sequence[Entry]) -> list[Any]:
        a = self._arrow
        kept = [np.zeros((0, 0), np.float16) if e.locals is None else e.locals for e in entries]
        ends = np.cumsum([0, *(local.size for local in kept)])
        flat = np.concatenate([local.reshape(-1) for local in kept]).astype(np.float16)
        cells = a.array([len(local) for local in kept], a.int32())
        return [a.LargeListArray.from_arrays(a.array(ends, a.int64()), a.array(flat)), cells]

    def _schema(self, about: Mapping[str, Any]) -> Any:
        a = self._arrow
        columns = [
            ("key", a.string()),
            ("kind", a.string()),
            ("vector", a.list_(a.float32(), self._width)),
            ("text", a.string()),
            ("metadata", a.string()),
            ("size", a.int64()),
            ("changed", a.int64()),
            ("digest", a.string()),
        ]
        if self._locals:
            columns += [("locals", a.large_list(a.float16())), ("cells", a.int32())]
        return a.schema(columns, {NOTE: json.dumps(about)})


def read_note(path: Path) -> dict[str, Any]:
    """What a file says of itself; empty where it says nothing."""
    pyarrow, parquet = arrow(path)
    try:
        note = read_json((parquet.read_schema(path).metadata or {}).get(NOTE, b"{}"))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DiptychError(f"{path}: not a readable parquet file: {str(error).partition(chr(10))[0]}") from None
    return note if isinstance(note, dict) else {}


def read_parquet(path: Path, locals: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of a file, some at a time: its columns by their plural names, and `vectors` (n, K, d).

    locals: with the local features (cells, f) of each row, or None, where the file has them
    """
    pyarrow, parquet = arrow(path)
    names = {"key": "keys", "kind": "kinds", "text": "texts"}
    try:
        with parquet.ParquetFile(path) as table:
            missing = next((n for n in ("key", "vector") if n not in table.schema_arrow.names), None)
            if missing is not None:
                raise DiptychError(f"{path}: has no column {missing!r}; expected 'key' and 'vector'")
            kind = table.schema_arrow.field("vector").type
            if not _is_vectors(pyarrow, kind):
                raise DiptychError(f"{path}: vector: a column of {kind}; expected lists of numbers")
            k = _set_size((table.schema_arrow.metadata or {}).get(NOTE, b"{}"), path)
            start = width = 0
            for batch in table.iter_batches(AT_ONCE):
                columns = {name: batch.column(name) for name in batch.schema.names if names.get(name, name) in READ}
                vector = columns.pop("vector")
                counts = pyarrow.compute.list_value_length(vector).to_pylist()
                width = width or next((count for count in counts if count), 0)
                wrong = next((row for row, count in enumerate(counts, start) if not count or count != width), None)
                if wrong is not None:
                    raise DiptychError(
                        f"{path}: row {wrong}: vector: {counts[wrong - start] or 'no'} numbers, expected {width}: "
                        "not all of them have the same length"
                    )
                if width % k:
                    raise DiptychError(f"{path}: vector: {width} numbers cannot be sets of {k} vectors")
                start += len(batch)
                flat = np.asarray(vector.flatten().to_numpy(zero_copy_only=False), np.float32)
                rows = {names.get(name, name): column.to_pylist() for name, column in columns.items()}
                if locals and {"locals", "cells"} <= set(batch.schema.names):
                    rows["locals"] = _locals_of(batch.column("locals"), batch.column("cells"))
                yield {**rows, "vectors": flat.reshape(len(batch), k, -1)}
    except (pyarrow.ArrowException, OSError) as error:
        raise DiptychError(f"{path}: not a readable parquet file: {str(error).partition(chr(10))[0]}") from None


def _locals_of(column: Any, cells: Any) -> list[np.ndarray | None]:
    """Local features (cells, f) of each row; None where it has none."""
    flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float16)
    ends = np.cumsum([0, *(len(row) for row in column)])
    counts = cells.to_pylist()
    return [flat[ends[i] : ends[i + 1]].reshape(n, -1) if n else None for i, n in enumerate(counts)]


def _is_vectors(pyarrow: Any, kind: Any) -> bool:
    """Whether a column's type is lists of real numbers."""
    types = pyarrow.types
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def _set_size(about: bytes, path: Path) -> int:
    """How many vectors an entry has, as the file says; one where it says nothing."""
    try:
        told = read_json(about)
        size = told.get("set_size", 1) if isinstance(told, dict) else None
    except ValueError:
        size = None
    if type(size) is not int or size < 1:
        raise DiptychError(f"{path}: its note of how many vectors an entry has cannot be read; it was not made here")
    return size


def told_columns(entry: Entry) -> str:
    """The metadata of an entry as JSON; empty where it has none."""
    return json.dumps(entry.metadata, ensure_ascii=False) if entry.metadata else ""


def arrow(path: Path) -> tuple[Any, Any]:
    """pyarrow and its parquet, or an error that says what to install for `path`."""
    try:
        import pyarrow
        import pyarrow.compute
        from pyarrow import parquet
    except ImportError:
        raise DiptychError(f"{path}: needs the package pyarrow; install diptych[search]") from None
    return pyarrow, parquet
