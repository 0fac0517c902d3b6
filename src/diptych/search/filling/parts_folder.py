"""The folder that parts are written into, on a disk that machines share or in an object store."""

import os
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from diptych.common.errors import DiptychError
from diptych.common.files import is_running, written_aside
from diptych.search.filling.remote import NotThere, again, changed_of, filesystem, is_url, local_copy, plain_place

# How files are named while they are written: what they will be, then the host and the process that writes.
_ASIDE = re.compile(r"\.(part-\d+\.parquet|bad-\d+\.jsonl|plan\.json)\.(.+)\.(\d+)\.part")


def is_parts_folder(place: str | Path) -> bool:
    """Whether a place is a folder of parts, and no file of vectors."""
    text = plain_place(place)
    return is_url(text) or os.path.isdir(os.path.expanduser(text))


class PartsFolder:
    """Files by name, each whole or not there: on a disk written aside and renamed, elsewhere put in one piece."""

    def __init__(self, place: str | Path) -> None:
        place = plain_place(place)
        self.address = place.rstrip("/") if is_url(place) else os.path.abspath(os.path.expanduser(place))
        self._remote = is_url(place)

    def holds(self, path: str) -> bool:
        """Whether a file lies in it."""
        return path.startswith(self.address + "/")

    def names(self) -> set[str]:
        """The files that are there; none where there is no folder yet."""
        if not self._remote:
            if os.path.exists(self.address) and not os.path.isdir(self.address):
                raise DiptychError("a file; expected a folder", where=self.address)
            return set(os.listdir(self.address)) if os.path.isdir(self.address) else set()
        return set(self._infos())

    def stamps(self, names: Sequence[str]) -> list[tuple[int, int]]:
        """Size and time of change of files that are there: others, once one is written again."""
        if not self._remote:
            found = [os.stat(os.path.join(self.address, name)) for name in names]
            return [(status.st_size, status.st_mtime_ns) for status in found]
        infos = self._infos()
        return [(int(infos[name].get("size") or 0), changed_of(infos[name])) for name in names]

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """A file of this machine's disk with what a name holds."""
        if not self._remote:
            yield Path(self.address) / name
            return
        with local_copy(f"{self.address}/{name}") as copy:
            yield copy

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A file of this machine's disk to write into; on success it takes its name."""
        if self._remote:
            with tempfile.TemporaryDirectory(prefix="diptych-") as folder:
                aside = Path(folder) / name
                yield aside
                fs, root = filesystem(self.address)
                again(lambda: fs.makedirs(root, exist_ok=True), self.address)
                again(lambda: fs.put_file(str(aside), f"{root}/{name}"), f"{self.address}/{name}")
            return
        # The host too: processes of several machines may write here.
        with written_aside(Path(self.address) / name, f"{socket.gethostname()}.{os.getpid()}") as aside:
            yield aside

    def remove(self, name: str) -> None:
        """Take a file away; one that is not there is no error."""
        if not self._remote:
            (Path(self.address) / name).unlink(missing_ok=True)
            return
        fs, root = filesystem(self.address)
        with suppress(NotThere):
            again(lambda: fs.rm_file(f"{root}/{name}"), f"{self.address}/{name}")

    def is_new(self) -> bool:
        """Whether nothing is there, but for what was begun and never took its name."""
        return all(_ASIDE.fullmatch(name) for name in self.names())

    def left_behind(self, name: str = "") -> list[str]:
        """What processes left that were ended while they wrote; of one name, or of all."""
        if self._remote:  # what is written there is aside on the disk of who writes
            return []
        found = [(n, _ASIDE.fullmatch(n)) for n in self.names()]
        return [n for n, told in found if told and name in ("", told[1]) and not _is_written(told[2], int(told[3]))]

    def sweep(self) -> None:
        """Take away what was left behind."""
        for name in self.left_behind():
            self.remove(name)

    def _infos(self) -> dict[str, dict[str, Any]]:
        """What an object store says of each file."""
        fs, root = filesystem(self.address)
        fs.invalidate_cache(root)  # other processes write here, too
        infos = again(lambda: fs.ls(root, detail=True) if fs.exists(root) else [], self.address)
        return {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in infos}


def _is_written(host: str, process: int) -> bool:
    """Whether another process of this machine is at it; of other machines' nobody here knows."""
    return host == socket.gethostname() and process != os.getpid() and is_running(process)
