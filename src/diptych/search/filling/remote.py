"""Places that fsspec knows by a URL (s3://, gs://, memory://, …): listed and fetched."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from diptych.common.errors import DiptychError
from diptych.search.filling.skipped import can_be_read
from diptych.search.filling.walk import Choice, FoundFile, ending_of, file_kind

# A request that fails is made again after so many seconds each time.
PAUSES = (0.5, 2.0, 8.0)
_LOCAL = ("file://", "local://")
# Under which name stores tell when an object was changed.
_CHANGED = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_GLOB = "*?["
T = TypeVar("T")


class NotThere(DiptychError):  # noqa: N818
    """What a URL names does not exist."""


def is_url(place: str | Path) -> bool:
    """Whether a place is not a path of this machine."""
    return "://" in str(place)


def plain_place(place: str | Path) -> str:
    """A place as it is meant: a file:// URL is a path of this machine."""
    text = str(place)
    return next((text.removeprefix(scheme) for scheme in _LOCAL if text.startswith(scheme)), text)


def filesystem(url: str) -> tuple[Any, str]:
    """What reads and writes a URL, and the URL's path there."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    try:
        found: tuple[Any, str] = url_to_fs(url)
        return found
    except ImportError as error:
        raise DiptychError(f"needs a package that is not installed: {error}", where=url) from None
    except ValueError as error:
        raise DiptychError(f"cannot be opened: {error}", where=url) from None


def list_url(url: str, choice: Choice, skipped: Counter[str]) -> list[FoundFile]:
    """The wanted files at a URL (a file, a folder or a pattern), in the order of their keys."""
    fs, root = filesystem(url)
    infos: dict[str, dict[str, Any]] = again(lambda: _infos(fs, root), url)
    if not infos:
        raise DiptychError("there is nothing here", where=url)
    named = len(infos) == 1 and root in infos
    found: list[FoundFile] = []
    for path, info in infos.items():
        below = path.removeprefix(root).lstrip("/") or path.rpartition("/")[2]
        if not named and any(choice.leaves_out(name, below) for name in below.split("/")):
            continue
        kind = file_kind(path)
        # A camera's RAW file is read from a disk only.
        if kind is None or kind == "raw" or not can_be_read(kind) or not (named or choice.wants(kind)):
            skipped[ending_of(path)] += 1
            continue
        found.append(FoundFile(fs.unstrip_protocol(path), kind, int(info.get("size") or 0), changed_of(info)))
    return sorted(found, key=lambda file: file.order)


def fetch_bytes(file: FoundFile) -> bytes:
    """The bytes of an object; what goes wrong on the way is tried again, and then an error."""
    fs, path = filesystem(file.path)
    data: bytes = again(lambda: fs.cat_file(path), file.path)
    return data


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """A file on this machine's disk with what is at a URL, for as long as it is needed; its name is the same."""
    fs, path = filesystem(url)
    with tempfile.TemporaryDirectory(prefix="diptych-") as folder:
        copy = Path(folder) / path.rpartition("/")[2]
        again(lambda: fs.get_file(path, str(copy)), url)
        yield copy


def again(ask: Callable[[], T], url: str) -> T:
    """What a store answers, asked several times before it is an error; that a thing is not there is one at once."""
    for pause in (*PAUSES, None):
        try:
            return ask()
        except FileNotFoundError:
            raise NotThere("no such file or folder", where=url) from None
        except Exception as error:  # each store has errors of its own
            if pause is None or isinstance(error, PermissionError | NotImplementedError):
                reason = str(error).partition("\n")[0] or type(error).__name__
                raise DiptychError(f"cannot be read: {reason}", where=url) from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def _infos(fs: Any, root: str) -> dict[str, dict[str, Any]]:
    if any(sign in root for sign in _GLOB):
        infos: dict[str, dict[str, Any]] = fs.glob(root, detail=True)
    else:
        infos = fs.find(root, detail=True)
    return {path: info for path, info in infos.items() if info.get("type") == "file"}


def changed_of(info: dict[str, Any]) -> int:
    """When an object was changed, in nanoseconds since 1970; 0 where its store does not say."""
    told = next((info[name] for name in _CHANGED if info.get(name) is not None), None)
    if isinstance(told, str):
        try:
            told = datetime.fromisoformat(told)
        except ValueError:
            return 0
    if isinstance(told, datetime):
        since = (told if told.tzinfo else told.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    return int(told * 10**9) if isinstance(told, int | float) else 0
