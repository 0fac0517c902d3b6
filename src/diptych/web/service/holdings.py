"""What the server holds: entries, models and columns."""

import os
import time
from itertools import islice
from typing import Any

from diptych.search.index import Index
from diptych.search.stores.store import Condition
from diptych.web.settings import ServerSettings

# Entries that are looked at for the names of columns.
LOOKED_AT, SAMPLE = 20_000, 500
COUNT_AGAIN = 5.0


class Holdings:
    """What there is to search, counted now and then; every method may be called by any thread."""

    def __init__(self, index: Index, settings: ServerSettings) -> None:
        self.index = index
        self.settings = settings
        self._columns: list[str] | None = None
        self._counted: tuple[float, dict[str, int]] | None = None

    @property
    def model(self) -> str:
        """The name of the model as it is shown: of a folder, its last part."""
        return _shown(self.index.model)

    @property
    def reranker(self) -> str | None:
        """The name of the re-ranking model as it is shown, where there is one."""
        return None if self.settings.rerank is None else _shown(self.settings.rerank)

    def overview(self) -> dict[str, Any]:
        """All of it, as `schemas.Overview` has it."""
        counts = self.counts()
        columns = self._columns
        if columns is None:
            columns = self._columns = _columns(self.index)
        return {
            "entries": sum(counts.values()),
            "pictures": counts["picture"],
            "sentences": counts["sentence"],
            "model": self.model,
            "reranker": self.reranker,
            "columns": columns,
            "credits": self.settings.credits,
        }

    def counts(self) -> dict[str, int]:
        """Entries by kind; in a large index counting takes a while, so the answer is good for some seconds."""
        known = self._counted
        if known is None or time.monotonic() - known[0] > COUNT_AGAIN:
            counts = {kind: self.index.count([Condition("kind", "=", kind)]) for kind in ("picture", "sentence")}
            known = self._counted = (time.monotonic(), counts)
        return known[1]

    def changed(self, columns: bool = False) -> None:
        """Count again; columns: entries came that may have new ones."""
        self._counted = None
        if columns:
            self._columns = None


def _shown(name: str) -> str:
    return os.path.basename(name.rstrip("/"))


def _columns(index: Index) -> list[str]:
    """The names of metadata columns, found by looking at some of the entries."""
    keys = [stamp.key for stamp in islice(index.store.stamps(), LOOKED_AT)]
    step = max(1, len(keys) // SAMPLE)
    names = {name for entry in index.store.get(keys[::step], locals=False) if entry for name in entry.metadata}
    return sorted(names)
