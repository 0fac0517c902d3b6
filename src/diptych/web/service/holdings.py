"""What the server holds: entries, models and columns."""

import os
import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

from diptych.search.index import Index
from diptych.search.stores.store import Condition
from diptych.web.settings import ServerSettings

# Entries that are looked at for the names of columns.
LOOKED_AT, SAMPLE = 20_000, 500
# Where it cannot be seen whether an index changed, what was counted is good for so many seconds.
COUNT_AGAIN = 5.0
# Columns are rarely new, and many entries are read to find them: not more often than after so many seconds.
COLUMNS_AGAIN = 60.0


@dataclass(frozen=True)
class _Columns:
    """The names that were found in a store of this identity and state, good until then whatever its state."""

    identity: str
    state: object
    until: float
    names: list[str]


class Holdings:
    """What there is to search, counted again when the index changed; every method may be called by any thread."""

    def __init__(self, index: Index, settings: ServerSettings) -> None:
        self.index = index
        self.settings = settings
        self._columns: _Columns | None = None
        self._counted: tuple[object, dict[str, int]] | None = None

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
        return {
            "entries": sum(counts.values()),
            "pictures": counts["picture"],
            "sentences": counts["sentence"],
            "model": self.model,
            "reranker": self.reranker,
            "columns": self.columns(),
            "credits": self.settings.credits,
        }

    def counts(self) -> dict[str, int]:
        """Entries by kind."""
        state, known = self._state(), self._counted
        if known is None or known[0] != state:
            counts = {kind: self.index.count([Condition("kind", "=", kind)]) for kind in ("picture", "sentence")}
            known = self._counted = (state, counts)
        return known[1]

    def columns(self) -> list[str]:
        """The names of metadata columns: those of another index at once, new ones of this after a minute at most."""
        identity, state, now, known = self.index.store.identity, self._state(), time.monotonic(), self._columns
        if known is None or known.identity != identity or (known.state != state and now > known.until):
            known = self._columns = _Columns(identity, state, now + COLUMNS_AGAIN, _columns(self.index))
        return known.names

    def _state(self) -> object:
        """Another one where the index may be another, whoever changed it."""
        state = self.index.store.state
        return int(time.monotonic() / COUNT_AGAIN) if state is None else state

    def changed(self) -> None:
        """Count again, and look for columns again."""
        self._counted = self._columns = None


def _shown(name: str) -> str:
    return os.path.basename(name.rstrip("/"))


def _columns(index: Index) -> list[str]:
    """The names of metadata columns, found by looking at some of the entries."""
    keys = [stamp.key for stamp in islice(index.store.stamps(), LOOKED_AT)]
    step = max(1, len(keys) // SAMPLE)
    names = {name for entry in index.store.get(keys[::step], locals=False) if entry for name in entry.metadata}
    return sorted(names)
