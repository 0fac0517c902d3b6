"""What an index in a file remembers of how it is to be searched: the kind of approximate index, and memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from diptych.common.errors import DiptychError

Approximation = Literal["ivf", "hnsw", "pq"]
# The names of the properties.
APPROXIMATE, MEMORY = "approximate", "memory"
# Bytes that preparing or searching may take by default, and what is least of use.
ENOUGH_MEMORY, LEAST_MEMORY = 1 << 30, 64 << 20


@dataclass(frozen=True)
class VectorSettings:
    """How vectors are prepared and searched.

    kind: ivf, an inverted file with a byte a number; hnsw, a graph; pq, an inverted file with a bit a number
    memory: bytes that preparing or searching may take on top of the program itself; mapped files are not counted,
        since the system takes them back when it needs to
    """

    kind: Approximation = "ivf"
    memory: int = ENOUGH_MEMORY

    def __post_init__(self) -> None:
        if self.kind not in get_args(Approximation):
            raise DiptychError(f"approximate: expected ivf, hnsw or pq, got {self.kind!r}")
        if self.memory < LEAST_MEMORY:
            raise DiptychError(f"memory: expected at least {LEAST_MEMORY >> 20}MiB, got {self.memory} bytes")

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "VectorSettings":
        """The settings among a store's properties; what is not there is as by default."""
        memory = properties.get(MEMORY, str(ENOUGH_MEMORY))
        if not memory.isdecimal():
            raise DiptychError(f"memory: expected a number of bytes, got {memory!r}")
        return cls(cast(Approximation, properties.get(APPROXIMATE, cls.kind)), int(memory))

    def properties(self) -> dict[str, str]:
        """The properties that say so."""
        return {APPROXIMATE: self.kind, MEMORY: str(self.memory)}

    def share(self, part: int, at_most: int) -> int:
        """One part of the memory, in bytes, but not more than is of use."""
        return min(at_most, self.memory // part)
