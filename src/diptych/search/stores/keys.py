"""Keys of entries, back to what they stand for: the file that an entry came from, and its picture."""

import re
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from PIL import Image

from diptych.common.errors import DiptychError
from diptych.data.collection import Open
from diptych.data.pictures import PictureBytes, PictureFile
from diptych.data.readers import fields

# A file that holds several entries gives each of them the key FILE#PART.
_PART = re.compile(r"^(.*?\.(?:txt|csv|tsv|jsonl|ndjson|tar|tar\.gz|tgz|parquet))#.", re.IGNORECASE | re.DOTALL)


def file_of(key: str) -> str:
    """The file that an entry came from: its key, without the part of the file."""
    match = _PART.match(key)
    return match[1] if match else key


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
