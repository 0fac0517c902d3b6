"""Embeddings in and out, as numpy (.npz) or parquet."""

import json
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside
from diptych.data.readers.json_value import read_json
from diptych.search.filling.imported_columns import COLUMNS, NUMBERS, READ, check_columns, check_vectors
from diptych.search.stores.store import Entry, Kind, Layout, Stamp, Store, Value

AT_ONCE = 1024


def entries_of(
    store: Store,
    keys: Sequence[str],
    vectors: np.ndarray,
    kind: Kind | Sequence[str],
    texts: Sequence[str] | None,
    metadata: Mapping[str, dict[str, Value]],
    stamps: Sequence[Stamp] | None = None,
) -> list[Entry]:
    """Entries with vectors from elsewhere, (n, d) or (n, K, d), brought to length 1; an error names a wrong one."""
    given = np.asarray(vectors)
    if given.dtype.kind not in "fiu":
        raise DiptychError(f"{store.address}: vectors of {given.dtype}; expected real numbers")
    with np.errstate(over="ignore"):  # what is too large is told below
        vectors = given.astype(np.float32)
    if vectors.ndim == 2:
        vectors = vectors[:, None]
    layout = store.layout
    if vectors.ndim != 3 or vectors.shape[1:] != (layout.set_size, layout.dim):
        raise DiptychError(
            f"{store.address}: vectors of shape {vectors.shape}; expected (entries, {layout.set_size}, {layout.dim})"
        )
    for name, column in (("keys", keys), ("texts", texts)):
        if column is not None and len(column) != len(vectors):
            raise DiptychError(
                f"{store.address}: {len(column)} {name} for {len(vectors)} vectors; expected one for each"
            )
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 1e-12)).all((1, 2)))
    if len(wrong):
        raise DiptychError(f"{store.address}: the vector of {keys[wrong[0]]!r} is zero or not finite")
    unit = vectors / lengths
    now = time.time_ns()
    kinds = [kind] * len(keys) if isinstance(kind, str) else list(kind)
    return [
        Entry(
            key,
            "sentence" if kinds[row] == "sentence" else "picture",
            unit[row],
            Stamp(key, 0, now, "") if stamps is None else stamps[row],
            "" if texts is None else texts[row],
            dict(metadata.get(key, {})),
        )
        for row, key in enumerate(keys)
    ]


def export(store: Store, path: Path) -> int:
    """Write every entry to a .npz or .parquet file, a part at a time; how many."""
    if path.suffix == ".parquet":
        return _export_parquet(store, path)
    if path.suffix == ".npz":
        return _export_numpy(store, path)
    raise DiptychError(f"{path}: expected a name that ends in .npz or .parquet")


def import_(store: Store, path: Path) -> int:
    """Add the entries of a .npz or .parquet file; how many."""
    if path.suffix not in (".npz", ".parquet"):
        raise DiptychError(f"{path}: expected a file that ends in .npz or .parquet")
    if not path.is_file():
        raise DiptychError(f"{path}: no such file")
    count = 0
    for rows in _read_parquet(path) if path.suffix == ".parquet" else _read_numpy(path):
        check_columns(rows, count, path)
        keys = rows["keys"]
        described = rows.get("metadata") or [""] * len(keys)
        metadata = {key: _columns(text, key, path) for key, text in zip(keys, described, strict=True) if text}
        kinds = [kind or "picture" for kind in rows.get("kinds") or [""] * len(keys)]
        texts = [text or "" for text in rows["texts"]] if "texts" in rows else None
        stamps = None
        if all(name in rows for name in ("size", "changed", "digest")):
            columns = zip(keys, rows["size"], rows["changed"], rows["digest"], strict=True)
            stamps = [Stamp(key, size, changed, digest or "") for key, size, changed, digest in columns]
        store.add(entries_of(store, keys, rows["vectors"], kinds, texts, metadata, stamps))
        count += len(keys)
    return count


def _columns(text: str, key: str, path: Path) -> dict[str, Value]:
    try:
        columns = read_json(text)
    except json.JSONDecodeError as error:
        raise DiptychError(f"{path}: metadata of {key!r}: not valid JSON: {error.msg}") from None
    if not isinstance(columns, dict):
        raise DiptychError(f"{path}: metadata of {key!r}: expected a JSON object of texts and numbers")
    return columns


def layout_of_file(path: Path) -> Layout:
    """The layout of the vectors in a file, so that an index can be made for them."""
    rows = next(_read_parquet(path) if path.suffix == ".parquet" else _read_numpy(path), None)
    if rows is None:
        raise DiptychError(f"{path}: holds no vectors")
    shape = rows["vectors"].shape
    return Layout(shape[-1], shape[1] if len(shape) == 3 else 1)


def _entries(store: Store) -> Iterator[list[Entry]]:
    stamps = store.stamps()
    while some := [stamp.key for stamp in islice(stamps, AT_ONCE)]:
        yield [entry for entry in store.get(some, locals=False) if entry is not None]


def _export_parquet(store: Store, path: Path) -> int:
    pyarrow, parquet = _arrow(path)
    k, d = store.set_size, store.dim
    about = {**asdict(store.layout), "model": store.properties.get("model", "")}
    schema = pyarrow.schema(
        [
            ("key", pyarrow.string()),
            ("kind", pyarrow.string()),
            ("vector", pyarrow.list_(pyarrow.float32(), k * d)),
            ("text", pyarrow.string()),
            ("metadata", pyarrow.string()),
            ("size", pyarrow.int64()),
            ("changed", pyarrow.int64()),
            ("digest", pyarrow.string()),
        ],
        {"diptych": json.dumps(about)},
    )
    count = 0
    with written_aside(path) as aside, parquet.ParquetWriter(aside, schema) as writer:
        for entries in _entries(store):
            flat = np.stack([e.vectors for e in entries]).reshape(-1)
            columns = [
                pyarrow.array([e.key for e in entries]),
                pyarrow.array([e.kind for e in entries]),
                pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat), k * d),
                pyarrow.array([e.text for e in entries]),
                pyarrow.array([_told(e) for e in entries]),
                pyarrow.array([e.stamp.size for e in entries], pyarrow.int64()),
                pyarrow.array([e.stamp.changed for e in entries], pyarrow.int64()),
                pyarrow.array([e.stamp.digest for e in entries]),
            ]
            writer.write_table(pyarrow.table(columns, schema=schema))
            count += len(entries)
    return count


def _export_numpy(store: Store, path: Path) -> int:
    """Vectors are written as they are read; names and texts are gathered first."""
    count = store.count()
    columns: dict[str, list[Any]] = {name: [] for name in ("keys", "kinds", "texts", "metadata", "digest")}
    numbers: dict[str, list[int]] = {"size": [], "changed": []}
    written = 0
    with written_aside(path) as aside, zipfile.ZipFile(aside, "w") as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (count, store.set_size, store.dim)}
            np.lib.format.write_array_header_1_0(file, header)
            for entries in _entries(store):
                entries = entries[: count - written]
                for entry in entries:
                    file.write(np.ascontiguousarray(entry.vectors, "<f4").tobytes())
                    for name, value in (
                        ("keys", entry.key),
                        ("kinds", entry.kind),
                        ("texts", entry.text),
                        ("metadata", _told(entry)),
                        ("digest", entry.stamp.digest),
                    ):
                        columns[name].append(value)
                    numbers["size"].append(entry.stamp.size)
                    numbers["changed"].append(entry.stamp.changed)
                written += len(entries)
        if written < count:
            raise DiptychError(f"{store.address}: entries were deleted while they were written to {path}; try again")
        for name, values in columns.items():
            _write_array(archive, name, np.array(values, dtype=np.str_))
        for name, values in numbers.items():
            _write_array(archive, name, np.array(values, np.int64))
    return written


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _read_numpy(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with np.load(path, allow_pickle=False) as held:
            missing = next((name for name in ("keys", "vectors") if name not in held), None)
            if missing is not None:
                raise DiptychError(f"{path}: has no array {missing!r}; expected 'keys' (n,) and 'vectors' (n, d)")
            whole = {name: _array(held, name, path) for name in ("vectors", *COLUMNS) if name in held}
    except DiptychError:
        raise
    except Exception as error:  # a broken archive can make its reader raise anything
        raise DiptychError(f"{path}: not a readable .npz file: {str(error).partition(chr(10))[0]}") from None
    check_vectors(whole["vectors"], path)
    for name, values in whole.items():
        if name != "vectors" and values.shape != (len(whole["vectors"]),):
            raise DiptychError(
                f"{path}: {name}: an array of shape {values.shape} for {len(whole['vectors'])} vectors; "
                "expected one value for each"
            )
    for start in range(0, len(whole["keys"]), AT_ONCE):
        part = {name: values[start : start + AT_ONCE] for name, values in whole.items()}
        yield {name: values if name == "vectors" else values.tolist() for name, values in part.items()}


def _array(held: Any, name: str, path: Path) -> np.ndarray:
    """One array of an archive; one of Python objects would have to be unpickled, which can run code."""
    try:
        array: np.ndarray = held[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        expected = "numbers" if name in ("vectors", *NUMBERS) else "texts"
        raise DiptychError(
            f"{path}: {name}: an array of Python objects, which is not read; expected {expected}"
        ) from None
    return array


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    pyarrow, parquet = _arrow(path)
    names = {"key": "keys", "kind": "kinds", "text": "texts"}
    try:
        with parquet.ParquetFile(path) as table:
            missing = next((n for n in ("key", "vector") if n not in table.schema_arrow.names), None)
            if missing is not None:
                raise DiptychError(f"{path}: has no column {missing!r}; expected 'key' and 'vector'")
            kind = table.schema_arrow.field("vector").type
            if not _is_vectors(pyarrow, kind):
                raise DiptychError(f"{path}: vector: a column of {kind}; expected lists of numbers")
            k = _set_size((table.schema_arrow.metadata or {}).get(b"diptych", b"{}"), path)
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
                yield {**rows, "vectors": flat.reshape(len(batch), k, -1)}
    except (pyarrow.ArrowException, OSError) as error:
        raise DiptychError(f"{path}: not a readable parquet file: {str(error).partition(chr(10))[0]}") from None


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


def _told(entry: Entry) -> str:
    return json.dumps(entry.metadata, ensure_ascii=False) if entry.metadata else ""


def _arrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.compute
        from pyarrow import parquet
    except ImportError:
        raise DiptychError(f"{path}: needs the package pyarrow; install diptych[search]") from None
    return pyarrow, parquet
