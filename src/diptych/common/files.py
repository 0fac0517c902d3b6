"""Files that are whole or not there: written aside, then renamed."""

import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.common.machine import writing


@contextmanager
def written_aside(path: Path, writer: str | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is flushed to disk and takes `path`'s name.

    writer: who writes, where folders are shared; by default this process
    """
    aside = path.with_name(f".{path.name}.{writer or os.getpid()}.part")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield aside
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def remove_left_over(path: Path) -> None:
    """Remove what processes of this machine that were killed while they wrote `path` have left beside it."""
    for aside in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        number = aside.name.split(".")[-2]
        if number.isdecimal() and not is_running(int(number)):
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def reserve(file: int, size: int) -> None:
    """Have room for `size` bytes in an open file before it is mapped: a full disk is an error here, later a crash."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


def is_running(process: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is someone else's
        return True
    return True


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file; what cannot be read, or is not UTF-8, is an error that names it."""
    try:
        return path.read_text(encoding=encoding)
    except FileNotFoundError:
        raise DiptychError("no such file", where=path) from None
    except OSError as error:
        raise DiptychError(f"cannot be read: {error.strerror or error}", where=path) from None
    except UnicodeDecodeError as error:
        raise DiptychError(f"not valid UTF-8: {error.reason} at byte {error.start}", where=path) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
