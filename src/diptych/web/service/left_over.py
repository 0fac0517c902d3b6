"""Files of added pictures that no entry speaks of any more: put aside at a server's start, and removed much later."""

import os
import re
import time
from pathlib import Path

from diptych.common.config import read_json
from diptych.common.errors import DiptychError
from diptych.common.files import write_json
from diptych.search.index import Index

# The name of an added picture's file: the hash of its content.
OURS = re.compile(r"[0-9a-f]{32}\.[a-z0-9]+")
# Which indexes have put files into a folder.
OWNERS = ".indexes.json"
ASIDE = "left-over"
# A younger file may be one that another process is about to index; what lies aside is removed after a month.
GRACE, KEPT = 3600.0, 30 * 86400.0


class UploadsFolder:
    """The folder of added pictures, and whose it is.

    A file without an entry is left by a kill between writing and indexing, or by a delete that could not remove it.
    It may also be somebody's only copy of a picture: an older state of the index was put back, the index was made
    again, or another one uses the folder too. So only files that this server names are looked at, only in a folder
    that no other index ever wrote to, and they are put aside before they are removed; those that have an entry again
    come back.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder, self._index = folder, index

    def claim(self) -> None:
        """Write down that this index puts files here, before the first is written."""
        owners = self._owners()
        identity = self._index.store.identity
        if owners is None:  # from before this was written down: nobody knows whose they are
            owners = ["unknown"] if any(self._files(self.folder)) else []
        if identity not in owners:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / OWNERS, [*owners, identity])

    def tidy(self, now: float | None = None) -> int:
        """Put files without an entry aside, and remove those that have been there for long; how many went aside."""
        now = time.time() if now is None else now
        if self._owners() != [self._index.store.identity]:
            return 0
        keys = {stamp.key for stamp in self._index.store.stamps(f"{self.folder}{os.sep}")}
        aside = self.folder / ASIDE
        for file in self._files(aside):
            back = self.folder / file.name
            if str(back) in keys and not back.exists():
                os.replace(file, back)
            elif now - file.stat().st_mtime > KEPT:
                file.unlink(missing_ok=True)
        lost = [
            file for file in self._files(self.folder) if str(file) not in keys and now - file.stat().st_mtime > GRACE
        ]
        for file in lost:
            aside.mkdir(exist_ok=True)
            os.replace(file, aside / file.name)
            os.utime(aside / file.name, (now, now))  # counted from here on
        return len(lost)

    def _owners(self) -> list[str] | None:
        """The indexes that wrote here; None where that was never written down. A list that is damaged names nobody."""
        path = self.folder / OWNERS
        if not path.is_file():
            return None
        try:
            owners = read_json(path)
        except DiptychError:
            return ["unknown"]
        return [str(owner) for owner in owners] if isinstance(owners, list) else ["unknown"]

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        """Files that were added here, by their names; links are none of ours."""
        if not folder.is_dir():
            return []
        return sorted(f for f in folder.iterdir() if OURS.fullmatch(f.name) and f.is_file() and not f.is_symlink())
