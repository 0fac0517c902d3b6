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
from diptych.data.video import SUFFIXES as VIDEO_SUFFIXES
from diptych.data.video import FrameOf

# A file that holds several entries gives each of them the key FILE#PART.
_PART = re.compile(r"^(.*?\.(?:txt|csv|tsv|jsonl|ndjson|tar|tar\.gz|tgz|parquet))#.", re.IGNORECASE | re.DOTALL)
_VIDEOS = "|".join(sorted(suffix[1:] for suffix in VIDEO_SUFFIXES))
_FRAME = re.compile(rf"^(.*\.(?:{_VIDEOS}))#(\d+\.\d{{3}})$", re.IGNORECASE | re.DOTALL)
# The column of a frame's second.
SECOND = "second"


def file_of(key: str) -> str:
    """The file that an entry came from: its key, without the part of the file."""
    match = (_FRAME.match(key) or _PART.match(key)) if "#" in key else None
    return match[1] if match else key


def patterns_of(path: str) -> tuple[str, str, str]:
    """Patterns that together fit all entries of a file or folder: itself, its parts, and what lies in it."""
    literal = "".join(f"[{c}]" if c in "*?[" else c for c in path.rstrip("/"))
    return literal, f"{literal}#*", f"{literal}/*"


def frame_key(file: str, second: float) -> str:
    """The key of a video's frame; the keys of one video are in the order of its frames for the first 28 hours."""
    return f"{file}#{second:09.3f}"


def second_of(key: str) -> float | None:
    """The second of a video's frame; None for all other keys."""
    match = _FRAME.match(key) if "#" in key else None
    return float(match[2]) if match else None


def open_key(key: str) -> Open:
    """A function that decodes the picture of an entry: a file, or a part of a video, tar or parquet file."""
    file, second = file_of(key), second_of(key)
    if second is not None:
        return FrameOf(Path(file), second)
    if file == key:
        return PictureFile(Path(key))
    part = key[len(file) + 1 :]
    return partial(_open_row if file.lower().endswith(".parquet") else _open_member, Path(file), part)


def holds_pictures(file: str) -> bool:
    """Whether a file has pictures as parts of it: a tar or parquet file."""
    return file.lower().endswith((".tar", ".tar.gz", ".tgz", ".parquet"))


def bytes_of(key: str) -> bytes:
    """The bytes of a picture that is a part of a tar or parquet file."""
    file = file_of(key)
    part = key[len(file) + 1 :]
    return (_row_bytes if file.lower().endswith(".parquet") else _member_bytes)(Path(file), part)


def _open_member(path: Path, name: str) -> Image.Image:
    return PictureBytes(_member_bytes(path, name), f"{path}: {name}")()


def _member_bytes(path: Path, name: str) -> bytes:
    try:
        with tarfile.open(path) as archive:
            content = archive.extractfile(name)
            return content.read() if content is not None else b""
    except (tarfile.TarError, KeyError, OSError, EOFError):
        raise DiptychError(f"{path}: {name}: cannot be read from this tar") from None


def _open_row(path: Path, row: str) -> Image.Image:
    return PictureBytes(_row_bytes(path, row), f"{path}: row {row}")()


def _row_bytes(path: Path, row: str) -> bytes:
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
    return data
