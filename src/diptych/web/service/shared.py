"""What the worker processes of one server have in common."""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shared:
    """A folder that only this server's processes use, for as long as it runs; and the secret of the index's ids."""

    folder: Path
    secret: str

    @property
    def metrics(self) -> Path:
        """Where every worker keeps its figures."""
        return self.folder / "metrics"

    @property
    def uploads(self) -> Path:
        """Where pictures to search with are kept."""
        return self.folder / "uploads"

    @property
    def wrong_tokens(self) -> Path:
        """Where wrong tokens are counted."""
        return self.folder / "wrong-tokens.db"

    def make(self) -> None:
        """Make the folders in it."""
        for folder in (self.metrics, self.uploads):
            folder.mkdir()


class OneWriter:
    """Lets one process at a time change the index, and tells how much was changed since it was last prepared.

    folder: what the processes share; None where there is but one of them
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._count = None if folder is None else folder / "changed"
        self._prepared = None if folder is None else folder / "prepared"
        self._changed = 0
        self._seen = self._last_prepared()
        self._lock = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process changes anything meanwhile."""
        if self._count is None:
            yield
            return
        held = os.open(self._count, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def noted(self, count: int) -> int:
        """So many entries were changed, by a caller that is alone; how many since the index was prepared, by all."""
        if self._count is None:
            self._changed += count
            return self._changed
        total = count + int(self._count.read_text() or 0)
        self._count.write_text(str(total))
        return total

    def prepared(self) -> None:
        """The index was prepared by a caller that is alone; the others hear of it."""
        if self._count is None or self._prepared is None:
            self._changed = 0
            return
        self._count.write_text("")
        self._prepared.write_text("")
        self._seen = self._last_prepared()

    def others_prepared(self) -> bool:
        """Whether another process has prepared the index since this was last asked."""
        if self._prepared is None:
            return False
        with self._lock:
            last, before = self._last_prepared(), self._seen
            self._seen = last
        return last != before

    def _last_prepared(self) -> int:
        try:
            return 0 if self._prepared is None else self._prepared.stat().st_mtime_ns
        except FileNotFoundError:
            return 0
