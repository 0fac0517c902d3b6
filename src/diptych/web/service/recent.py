"""What was used last, kept up to so many bytes."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """What was used last, by name, up to so many bytes and things."""

    def __init__(self, most_bytes: int, most: int) -> None:
        self.most_bytes, self.most = most_bytes, most
        self._things: OrderedDict[object, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, name: object) -> T | None:
        """The thing of this name, which is then the last used."""
        with self._lock:
            if name not in self._things:
                return None
            self._things.move_to_end(name)
            return self._things[name][0]

    def put(self, name: object, thing: T, size: int) -> None:
        """Keep a thing; those that were not used for longest go."""
        with self._lock:
            if name in self._things:
                self._bytes -= self._things.pop(name)[1]
            self._things[name] = (thing, size)
            self._bytes += size
            while len(self._things) > self.most or (self._bytes > self.most_bytes and len(self._things) > 1):
                self._bytes -= self._things.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._things)
