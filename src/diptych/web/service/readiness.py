"""Whether the server can answer now: its models are loaded, its index answers a look, and its queue has room."""

import sys
import time
from collections.abc import Callable

from diptych.common.machine import machine_error
from diptych.search.index import Index

# A look at the index must come back within so many seconds, and says for so long how things are.
LOOK_WITHIN, GOOD_FOR = 5.0, 1.0
# Whoever asks needs no token, and errors of stores name files, servers and entries.
BROKEN = "the index cannot be searched"
LATE = f"the index did not answer within {LOOK_WITHIN:g} seconds"


class Readiness:
    """Looks at the index when it is asked, however often, once a second at most; one thread asks at a time.

    full: whether searches are being refused
    """

    def __init__(self, index: Index, full: Callable[[], bool]) -> None:
        self._index, self._full = index, full
        self._known: tuple[float, str | None] | None = None
        self._reason: str | None = None
        self.loaded = False

    def now(self) -> str | None:
        """What keeps it from answering, in one sentence; None where nothing does."""
        if not self.loaded:
            return "the models are being loaded"
        if self._full():
            return "as many searches are waiting as may wait"
        if self._known is None or time.monotonic() > self._known[0]:
            reason = self._looked()
            self._note(reason)
            self._known = time.monotonic() + GOOD_FOR, None if reason is None else BROKEN
        return self._known[1]

    def _looked(self) -> str | None:
        """Why a search as all searches are failed, with a vector of the index's own; None where it did not."""
        store = self._index.store
        try:
            own = store.background(1)
            if len(own):
                store.search(own, 1)
        except Exception as error:  # whatever it is, nobody can search
            return machine_error(error) or f"{type(error).__name__}: {error}"
        return None

    def _note(self, reason: str | None) -> None:
        """Tell whoever runs the server why, once for each reason."""
        if reason is not None and reason != self._reason:
            print(f"note: {BROKEN}: {reason}", file=sys.stderr, flush=True)
        self._reason = reason
