"""What stores on servers have in common: which collection they have open, and how it is searched."""

from typing import Any

from diptych.search.stores.server import ServerConnection
from diptych.search.stores.server_index import ServerIndex
from diptych.search.stores.store import Layout
from diptych.search.stores.watch import Watch


class ServerStore:
    """A store whose collection is watched; a class for each kind of server adds what is read and written."""

    _server: ServerConnection
    _watch: Watch
    _index: ServerIndex[Any]

    @property
    def address(self) -> str:
        """What opens it again: scheme://host:port/name."""
        return self._server.address

    @property
    def layout(self) -> Layout:
        """d, K and alpha."""
        return self._watch.layout

    @property
    def identity(self) -> str:
        """Which store it is now: its address, and the number of its collection."""
        return f"{self.address} {self._watch.number}"

    @property
    def dim(self) -> int:
        """d."""
        return self.layout.dim

    @property
    def set_size(self) -> int:
        """K."""
        return self.layout.set_size

    @property
    def recall(self) -> float | None:
        """The measured recall of the approximate index in use; None while searches are exact."""
        return self._index.state().recall

    def close(self) -> None:
        """Let go of the connection; closing twice is fine."""
        self._server.close()

    def _replaced(self) -> None:
        """Another collection has taken the place of the one before: what was known of that is forgotten."""
        self._index.forget()
