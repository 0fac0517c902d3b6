"""Whether the server can answer now: its models are loaded, its index answers a look, and its queue has room."""

import time
from collections.abc import Callable

from diptych.common.errors import DiptychError
from diptych.search.index import Index

# A look at the index must come back within so many seconds, and says for so long how things are.
LOOK_WITHIN, GOOD_FOR = 5.0, 1.0
LATE = f"the index did not answer within {LOOK_WITHIN:g} seconds"


class Readiness:
    """Looks at the index when it is asked, however often, once a second at most; one thread asks at a time.

    full: whether searches are being refused
    """

    def __init__(self, index: Index, full: Callable[[], bool]) -> None:
        self._index, self._full = index, full
        self._known: tuple[float, str | None] | None = None
        self.loaded = False

    def now(self) -> str | None:
        """What keeps it from answering, in one sentence; None where nothing does."""
        if not self.loaded:
            return "the models are being loaded"
        if self._full():
            return "as many searches are waiting as may wait"
        if self._known is None or time.monotonic() > self._known[0]:
            problem = self._looked()
            self._known = time.monotonic() + GOOD_FOR, problem
        return self._known[1]

    def _looked(self) -> str | None:
        """What came of one search as all searches are, with a vector of the index's own."""
        store = self._index.store
        try:
            own = store.background(1)
            if len(own):
                store.search(own, 1)
        except DiptychError as error:
            return str(error)
        except Exception as error:  # whatever it is, nobody can search
            return f"the index cannot be searched ({type(error).__name__})"
        return None
