"""Embeddings in and out, as numpy (.npz) or parquet."""

import json
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside
from diptych.data.readers.json_value import read_json
from diptych.search.filling.entry_table import EntryTable, read_parquet, told_columns
from diptych.search.filling.imported_columns import COLUMNS, NUMBERS, check_columns, check_vectors
from diptych.search.stores.store import Entry, Kind, Layout, Stamp, Store, Value

AT_ONCE = 1024
# A vector this close to length 1 is one already, and stays as it is, bit for bit.
ROUNDING = 1e-6


def entries_of(
    store: Store,
    keys: Sequence[str],
    vectors: np.ndarray,
    kind: Kind | Sequence[str],
    texts: Sequence[str] | None,
    metadata: Mapping[str, dict[str, Value]],
    stamps: Sequence[Stamp] | None = None,
    locals: Sequence[np.ndarray | None] | None = None,
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
    unit = vectors / np.where(np.abs(lengths - 1) <= ROUNDING, np.float32(1), lengths)
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
            None if locals is None else locals[row],
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


def import_(store: Store, path: Path, locals: bool = False) -> int:
    """Add the entries of a .npz or .parquet file; how many.

    locals: with the local features that it holds, which the store must be meant to keep
    """
    if path.suffix not in (".npz", ".parquet"):
        raise DiptychError(f"{path}: expected a file that ends in .npz or .parquet")
    if not path.is_file():
        raise DiptychError(f"{path}: no such file")
    count = 0
    for rows in read_parquet(path, locals) if path.suffix == ".parquet" else _read_numpy(path):
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
        store.add(entries_of(store, keys, rows["vectors"], kinds, texts, metadata, stamps, rows.get("locals")))
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
    rows = next(read_parquet(path) if path.suffix == ".parquet" else _read_numpy(path), None)
    if rows is None:
        raise DiptychError(f"{path}: holds no vectors")
    shape = rows["vectors"].shape
    return Layout(shape[-1], shape[1] if len(shape) == 3 else 1)


def _entries(store: Store) -> Iterator[list[Entry]]:
    stamps = store.stamps()
    while some := [stamp.key for stamp in islice(stamps, AT_ONCE)]:
        yield [entry for entry in store.get(some, locals=False) if entry is not None]


def _export_parquet(store: Store, path: Path) -> int:
    model = store.properties.get("model", "")
    count = 0
    with written_aside(path) as aside, EntryTable(aside, store.layout, {"model": model}) as table:
        for entries in _entries(store):
            table.write(entries)
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
                        ("metadata", told_columns(entry)),
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
